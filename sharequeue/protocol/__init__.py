"""The protocol of share groups, as data: what may be asked, what is answered, and within which bounds. Source: KIP-932.

    types, bounds ──▶ messages/ ──▶ apis/     the words, the bodies, and the calls that carry them
                          └──────▶ errors ──▶ configs, mistakes     every error; settings; how a fault is explained
    codec, nesting                            JSON of the messages; values too deep for its decoder
    shards, histogram                         keys to shards; durations that can be merged

(An arrow points to what imports.) The room decides nothing about records, groups or connections: it says what counts as
a valid request, and what a caller may conclude from an error. It is pure: no IO, no clock, no framework. Everything may
import it; it imports nothing of the project.
"""
