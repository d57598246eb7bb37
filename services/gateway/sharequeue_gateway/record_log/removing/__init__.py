"""Decides what leaves the log, and what must stay: log starts, deleted topics, compaction.

    readers ──▶ readers_store        the floor of each group: all records below it are finished for the group
    retaining, trimming ──▶ the log start moves, under the lock of its partition     purging ──▶ rows go, later
    compacting ──▶ records leave a stored batch; its row and its offsets stay

A log start moves only in a transaction that has read the floors, so a group that begins to read loses nothing.
`retention_rule`, which is pure, says how far retention may go. Dead letters without a copy hold their records.

`retention` sweeps topics with `retaining`; `http` deletes records and topics with `trimming` and compacts; `leader`
begins groups with `readers` and raises their floors.
"""
