"""Dead letters in the log: written once, counted while they are open, then redriven, dropped, finished or deleted.

    dead_letter_log ──▶ dead_letter_sources     each dead letter, its record, and how many are open

Each of their tables changes in the transaction that appends or closes the dead letters, so a crash leaves no
dead letter twice and no wrong count. A dead letter that its topic cannot take is parked.

`delivery` writes dead letters, `http` lists and closes them. The removal of records asks which are still needed.
"""
