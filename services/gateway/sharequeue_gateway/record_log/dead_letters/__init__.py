"""Dead letters in the log: written once, counted while they are open, redriven or deleted.

    dead_letter_log ──▶ dead_letter_sources     records that a dead letter without a copy points to
                   └──▶ open_dead_letters ──▶ open_ranges (pure)     which are open, and how many

Each of the three tables changes in the transaction that appends or redrives the dead letters, so a crash leaves no
dead letter twice and no wrong count. A dead letter that its topic cannot take is parked.

`delivery` writes dead letters, `http` redrives them. The removal of records asks which of them are still needed.
"""
