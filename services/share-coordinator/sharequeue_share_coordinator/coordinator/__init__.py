"""The states in memory, and the one loop that commits what requests decide about them.

A state changes only after its row is durable. All requests that arrive during a commit share the next one.

    commit ─▶ gathered ─▶ load states ─▶ decide each ─▶ append all rows, one statement ─▶ replay ─▶ answer each
                 ▲                                                     │
                 └───────── requests gather for the next commit ───────┘

    the append is refused    split the requests in two halves and commit each; the culprit is found alone
    its outcome is unknown   discard the states; load them again under higher owner epochs, which fence the lost write
    another owner wrote      answer NOT_COORDINATOR; the callers look for the new owner

`coordinator.py` is that loop, `state_cache.py` what it serves from, `housekeeping.py` prunes rows between commits.
`http/` submits operations, `Ownership` says which shards are owned and discards the states of lost ones.
"""
