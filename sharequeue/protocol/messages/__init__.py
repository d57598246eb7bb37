"""The messages of all calls: what is sent and answered, field by field as the HTTP contract names it.

    fields ──▶ problems, operations, topics, records, in_flight, groups, reports, compaction          clients' calls
           ──▶ share_state, cluster, leaders                                                           services' calls

A request refuses unknown fields. An optional field of an answer is absent, not null. Offsets are int64; `last_offset`
is inclusive, `log_end_offset` exclusive. Any layer may import a message; a message knows only types and bounds.
"""
