"""Delivery by the leader: fetches acquire records, acknowledgements settle them, dead letters leave.

`fetcher.py` runs a fetch; `delayed_fetch.py` one that finds nothing at once; `partition_reader.py` takes from one
share-partition. `waiting.py` has the life of a fetch as a table, `repeated_fetches.py` repeats by `fetch_id`,
`fetch_call.py` a fetch with acknowledgements. `acknowledging.py` applies acknowledgements, `dead_letters.py` writes dead
letters. The HTTP calls and the routing over gateways call this room; it calls the leader and the record log.

    fetch ──▶ OPEN ──▶ acquires ──▶ locks in Redis ──▶ answered
               │ nothing                                ▲
               ╰▶ sleeps ◀──▶ woken (leader/wake_up.py) │
                    ╰── the time is over, or an event of waiting.py ends it
"""
