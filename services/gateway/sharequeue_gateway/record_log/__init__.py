"""The record log: partitions of record batches on PostgreSQL, with recent batches in memory.

Decides: the stored form of a batch, the order of appends, what stays in memory and what is removed when. Callers use
the interfaces of `log`: `Appends` (produce), `RecordLog` (fetches, topics, offsets), `DeadLetterLog` (dead letters,
redriving). One `LogListener`, given to the constructor, hears of every append and every moved end.

A batch is one row: flags, record count, end positions, then the records as the JSON that fetches send, joined by commas
(`record_batch`). A partition ends behind its last batch. One task writes all appends, and gathers while it commits:

    append A ──▶┐
                ├─ commit 1: A ────────────────┐
    append B ──▶│  gathers                     ├─ commit 2: B, C, D ─────┐    one statement each
    append C ──▶│  gathers                     │                         ├─ publish ─▶ memory, LogListener
    append D ──▶┘  gathers                     └─ publish ─▶ …           ┘

A statement inserts a batch only where the partition ends as this gateway believes. A refused batch (another gateway
appended), an idempotency key, several partitions or an unknown end go to `locked_append`: lock, read the ends, insert.
If the answer of a commit is lost, its append id is looked up before anything is repeated.

    appending, locked_append, known_log     append, publish         store, purging, trimming, compacting    the SQL
    postgres, cache, record_batch           read                    database, connections                   its sessions
    dead_letter_log, activity_store, audit_store                    tables beside the log, and audits of it
"""
