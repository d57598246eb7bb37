"""The gateways as a cluster, and the knowledge that comes from outside: topics, group settings, Redis.

Decides: which gateway leads a share-partition, when a leader epoch is raised, and how long a cached answer of the group
coordinator is valid. Any room above may call this one; only `gateway.py` constructs its objects.

A generation is the set of live gateways under a number. The group coordinator makes the next one when a gateway joins
or leaves, or when its lease runs out. Gateways learn of it from their renewals and from the change feed.

    number 41: {A, B}  ── C registers ──▶  number 42: {A, B, C}  ── B's lease ends ──▶  number 57: {A, C}

The number is above every leader epoch given before, so a new leader writes with it and fences its predecessor.

    cluster, generation, leader_epochs    the leader of a share-partition, and its epoch
    store_clock                           the time that all gateways share: PostgreSQL's
    metadata                              topics and group settings
    append_news                           appends, announced between gateways
    redis_client, redis_faults            Redis, and the meaning of its faults
"""
