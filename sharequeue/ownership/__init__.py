"""Decides which instance owns a shard of a coordinator, and how a caller reaches the owner.

Decides: which instance owns a shard (a lease in PostgreSQL), and under which epoch it writes. Both coordinators run
`leases`; every service that calls a coordinator uses the clients here. Only `shard_store` speaks SQL.

    free ── take ──▶ owned, epoch n ── renewed every third of a lease ──┐
      ▲                │    │   ▲_______________________________________┘
      │    give back:  │    └─ lease not renewed ─▶ answers nothing ─▶ another instance takes it: epoch n + 1
      └─ drain, release┘                                               (a write under epoch n is refused)

A lease only shows the other instances which one is dead. The epoch keeps a paused owner out: each write names it, in
the same transaction, and a new owner raises it first.

    leases.py               which shards this instance owns        shard_store.py         the SQL of leases and epochs
    endpoints.py            /v1/shards, and /readyz                coordinator_client.py  call the owner of a key
    share_state_client.py   the share coordinators' calls, cut by owner
"""
