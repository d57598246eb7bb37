"""Acquisition locks in Redis: what the next leader finds, and when a lock is due.

`lock_writer.py` writes locks before a fetch is answered, `lock_store.py` reads them back and says what is due,
`scripts.py` holds the Lua scripts. The leader and what stands above it call this room. Memory decides when a lock ends;
Redis only reminds, so an early, late or lost reminder is harmless.

    write() ─▶ gathered ─▶ one pipeline at a time ─▶ Redis         in use
                                   │ fails or is late                ▲ all locks are written back
                                   ▼                                 │
                               degraded ── a probe is answered ──────╯
                               (writes succeed without Redis: the lease and the sweep stand in for it)
"""
