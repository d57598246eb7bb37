"""The gateways as a cluster, and what this one knows of the world: topics, settings, Redis.

Decides: which gateway leads a share-partition, when a leader epoch is raised, and how long an answer of the group
coordinator stays true. Any room above may ask; only `gateway` constructs.

A generation is the set of live gateways under a number. The group coordinator makes one whenever a gateway joins,
leaves or lets its lease end; gateways learn of it by their renewals and by the change feed.

    number 41: {A, B}  ── C registers ──▶  number 42: {A, B, C}  ── B's lease ends ──▶  number 57: {A, C}

Each gateway computes the leader by rendezvous hashing: the node with the highest hash(node, share-partition) leads.

    hash     A    B    C       {A, B}     {A, B, C}     {A, C}
    orders:0 71   12   40       A          A             A       a node that joins takes only what it hashes highest;
    orders:1 25   66   80       B          C             C       a node that leaves gives away only what it led
    orders:2 33   90   54       B          B             C

The number is above every leader epoch given before, so a new leader may write with it and fence its predecessor.

    cluster, generation, leader_epochs    who leads, under which epoch      metadata        topics and group settings
    append_news                           appends, across gateways          redis_client, redis_faults    Redis
"""
