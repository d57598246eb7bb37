"""Topics, gateways, and the feed of their changes: everything that belongs to no group and that every gateway needs.

One instance of the group coordinator owns this, the owner of the cluster's shard; the others follow it.

    owner     a change, and its note under the next version ─▶ one statement ─▶ NOTIFY
                                                                   │
    every instance, when notified and each second          catch_up: read the notes after its version
                                                                   │
    gateways that long-poll metadataChanges       ◀── ChangeFeed ──┘

    a topic       absent ─create─▶ present ─delete─▶ deleting ─▶ records removed ─▶ state deleted ─▶ absent
                                                     (answered here; the rest is resumed after a crash)
    access        the revision of keys and rights; they themselves are not kept in memory here
    generations   a gateway joins, leaves or is silent for its lease: the set of gateways gets the next number

Called by `groups/`, which reads topics here, and by `http/`. Topic rules (`topic_rules.py`) are pure.
"""
