"""Delivery by the leader: fetches acquire records, acknowledgements settle them, rejected ones become dead letters.

Decides: how long a fetch waits and when it ends, and whether an acknowledgement has a valid form. `http` and `routing`
call this room; it calls the leader and the record log.

    fetcher, delayed_fetch    a fetch; one that finds nothing at once      fetch_request        its limits and results
    partition_reader          acquires from one share-partition            waiting              its states, as a table
    repeated_fetches          a fetch that is repeated by `fetch_id`       held_records         what a member holds
    acknowledging             applies acknowledgements                     dead_letters         writes dead letters
    fetching_members          members that fetched lately                  holding              records of a transaction
    stored_records            single records of the log, parsed

    fetch ──▶ OPEN ──▶ acquires ──▶ locks in Redis ──▶ answered
               │ nothing                                ▲
               ╰▶ sleeps ◀──▶ woken (leader/wake_up.py) │
                    ╰── the deadline passes, or an event of waiting.py ends it
"""
