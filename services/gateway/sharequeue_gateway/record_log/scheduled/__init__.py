"""Records that enter the log at a later time, each exactly once: a table beside the log, and the move out of it.

    scheduleRecords ──▶ log.scheduled_records ──▶ (its time has come) ──▶ log.record_batches
                              │        one transaction deletes the rows and appends the records
                              └──▶ cancelScheduledRecords deletes the row

    scheduled_log ──▶ scheduled_store     the SQL

PostgreSQL's clock says what is due. Any gateway moves what is due; rows that another one has locked are skipped, so
nobody waits, and a gateway that dies in a move leaves everything as it was. `producing.mover` has the loop.
"""
