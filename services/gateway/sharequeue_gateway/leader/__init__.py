"""The share-partitions that this gateway leads: loads them, runs their events, persists what the events decide.

`leader.py` is the room's front: delivery and http call it, and loops tell it what happened (`write_ended`,
`topic_deleted`, `group_changed`). `log_news.py` hears of the record log. `hand_over.py` moves leadership between gateways,
`load_registry.py` and `loader.py` load, `persister.py` writes state, `due_locks.py` ends locks and delays.
`lock_entries.py` has locks in Redis before a client learns of them; `wake_up.py` chooses which waiting fetch is woken.

           load                        unload: another leads, a write's outcome is unknown,
    away ─────────▶ led ─────────────▶ idle, deleted, reset
      ▲              │ events           │
      └──────────────┴──────────────────┘ locks that may still be held are kept for the next load, here or elsewhere

A share-partition that is unloaded is `fenced`: an event that waited finds that and loads it again.
"""
