"""Acquisition locks in Redis: the copy that the next leader restores.

`lock_writer.py` writes locks before a fetch is answered; `lock_calls.py` says what a write is. `lock_store.py` reads
them back, and sees when Redis is away. `scripts.py` holds the Lua script, and `eviction.py` looks whether Redis may
drop entries. The leader and the rooms above it call this room. Memory decides when a lock ends.

    write() ─▶ gathered ─▶ one pipeline at a time ─▶ Redis         in use
                                   │ fails or is late                ▲ all locks are written back
                                   ▼                                 │
                               degraded ── a probe is answered ──────╯
                               (writes succeed without Redis: the lease and the sweep stand in for it)
"""
