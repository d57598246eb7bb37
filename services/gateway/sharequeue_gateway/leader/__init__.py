"""The share-partitions that this gateway leads: loads them, applies events to them, persists the changes.

Decides: when a share-partition is loaded and unloaded, and what the outcome of a write means. `leader.py` is the front:
`http`, `routing` and `delivery` call it; loops report events to it (`write_ended`, `topic_deleted`, `group_changed`).

    leader, led_index, led_share_partition    the events; all that is led; one of them
    loading (a room)                          a share-partition comes, or goes to another gateway
    reports (a room)                          counts for reports and metrics
    persister                                 state writes
    lock_entries, kept_locks                  locks in Redis; those of unloaded share-partitions
    rounds                                    locks end; unloading; the bound of the runs of all share-partitions
    wake_up, log_news                         wake the fetches that wait
    floors                                    what groups have finished, for the log's readers
    dead_letter_queue                         ranges that are ARCHIVING
    pending_transactions                      applies what transactions settled

           load                        unload: another leads, a write's outcome is unknown,
    away ─────────▶ led ─────────────▶ idle, deleted, reset
      ▲              │ events           │
      └──────────────┴──────────────────┘ locks that may still be held are kept for the next load, here or elsewhere

A request reads the clock once. Its write carries that time (`StateWrite.at_ms`), and reports use it when the write is
durable. Only a refused write reads the clock again: the locks of its records may have ended since.

An unloaded share-partition is `fenced`: a fetch that waited for it loads it again, here or at the new leader.
"""
