"""The record log: partitions of record batches on PostgreSQL, with recent batches in memory.

Decides: the stored form of a batch, the order of appends, which batches stay in memory, and when rows are removed.
Callers use `appending.Appender` (produce), `log.RecordLog` (reads), `PostgresRecordLog` (topics, ends) and
`DeadLetterLog` (dead letters, redriving). One `LogListener` receives every append and every moved end.

A batch is one row: flags, record count, end positions, then the records as the JSON that fetches send, joined by commas
(`record_batch`). A partition ends behind its last batch. One task writes all appends, and gathers while it commits:

    append A ──▶┐
                ├─ commit 1: A ────────────────┐
    append B ──▶│  gathers                     ├─ commit 2: B, C, D ─────┐    one statement each
    append C ──▶│  gathers                     │                         ├─ publish ─▶ memory, LogListener
    append D ──▶┘  gathers                     └─ publish ─▶ …           ┘

Rooms: `reading` (memory first, then a statement), `transactions`, `dead_letters`, and `removing` (what leaves the log).
Each has a page of its own. Beside them:

    postgres, parts                   the assembly, and the parts that the assembly of each log has
    appending ──▶ locked_append       the fast path of appends, and the slow one
    store, record_batch               the SQL of batches, and their stored form
    append_store, key_store           the SQL of the fast path, and of idempotency keys
    database, connections             sessions of PostgreSQL
    retention_rule                    up to where retention removes records; pure
    activity_store, backlog_store, sample_store    tables and queries beside the log
"""
