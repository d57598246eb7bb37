"""The record log: partitions of record batches on PostgreSQL, with recent batches in memory.

Decides: the stored form of a batch, the order of appends, which batches stay in memory, and when rows are removed. Callers use
the interfaces of `log`: `Appends` (produce), `RecordLog` (fetches, topics, offsets), `DeadLetterLog` (dead letters,
redriving). One `LogListener`, given to the constructor, receives every append and every moved end.

A batch is one row: flags, record count, end positions, then the records as the JSON that fetches send, joined by commas
(`record_batch`). A partition ends behind its last batch. One task writes all appends, and gathers while it commits:

    append A ──▶┐
                ├─ commit 1: A ────────────────┐
    append B ──▶│  gathers                     ├─ commit 2: B, C, D ─────┐    one statement each
    append C ──▶│  gathers                     │                         ├─ publish ─▶ memory, LogListener
    append D ──▶┘  gathers                     └─ publish ─▶ …           ┘

    appending, locked_append, known_log     append, publish         store, purging, trimming, compacting    the SQL
    postgres, cache, record_batch           read                    database, connections                   its sessions
    key_store                               the SQL of idempotency keys, and of tables that are kept for some periods
    retaining, retention_rule               up to where retention removes records
    transactions, ending                    begin, end and sweep transactions; transaction_rules: what they answer;
                                            transaction_store: their SQL; transaction_sizes: their bytes
    settlements                             what they settle, until the leaders have applied it
    readers, readers_store                  the groups that read each partition, and how far they have finished it
    dead_letter_log, dead_letter_sources, open_dead_letters, activity_store, audit_store    tables beside the log
"""
