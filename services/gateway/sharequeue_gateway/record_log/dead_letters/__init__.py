"""Dead letters in the log: written once, counted while they are open, then redriven, dropped, finished or deleted.

    dead_letter_log ──▶ dead_letter_sources     each dead letter, its record, and whether it is open

Its row changes in the transaction that appends or closes the dead letter, so a crash leaves none twice. A dead letter
that its topic cannot take is parked.

`delivery` writes dead letters, `http` lists and closes them. The removal of records asks which are still needed.
"""
