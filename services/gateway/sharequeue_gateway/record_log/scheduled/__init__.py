"""Records that enter the log at a later time, each exactly once: a table beside the log, and the move out of it.

    scheduleRecords ──▶ log.scheduled_records ──▶ (its time has come) ──▶ log.record_batches
                              │        one transaction deletes the rows and appends the records
                              └──▶ cancelScheduledRecords deletes the row

    scheduled_log ──▶ scheduled_store                 records, and their SQL
    schedule_log ──▶ schedule_store, cron_times       schedules, their SQL, and their times

A schedule is a row, too. Its record is appended in the transaction that moves the row to the next time.

PostgreSQL's clock says what is due. Any gateway moves what is due; rows that another one has locked are skipped, so
nobody waits, and a gateway that dies in a move leaves everything as it was. `producing.mover` has the loop.
"""
