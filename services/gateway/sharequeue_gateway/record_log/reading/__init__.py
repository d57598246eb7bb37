"""Reads of the log: from memory if it knows the answer, else one statement.

    fetch ──▶ committed_reads ──▶ cache                    an arrow: imports
                    │ read_committed only: aborted transactions, the last stable offset
                    └──▶ store: what memory does not have; read_room bounds how much of it at the same time

`cache` decides which batches stay, and knows the last stable offset of the part that it has judged. Pure. `KnownLog`
there changes the cache and reports each new end to the listener. `postgres` reads through this room; an append and an
end of a transaction put their batches into it.
"""
