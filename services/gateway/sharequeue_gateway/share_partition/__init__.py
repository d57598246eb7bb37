"""One share-partition, decided without IO: who holds which record, until when, and how often it was delivered.

`machine.py` has the events, `outcomes.py` their arguments and results, `acquisition.py` the rules of acquiring,
`restoring.py` those of loading. `transitions.py` commits changes or rolls them back, `pending.py` keeps records pending
on a transaction, `window.py` has the offsets and counts, `bounds.py` the names of their bounds, `new_records.py` the
fetches that begin at new records, `runs.py` the states and the table of their changes. `session.py` keeps share
sessions; `stream_window.py` is the window of a stream; `turns.py` and `fetch_limits.py` divide a fetch between
partitions; `batch_times.py` keeps the times at which records were appended.
`leader`, `delivery` and `routing` call this room and pass the time. It imports no clock, logging, asyncio or store.

    log            0         10        20        30        40        50        60
    runs                     [ACKED  ] [ACQUIRED]          [AVAILABLE][ACQUIRED]
    window                             ▲        ╰── hole ─╯                   ▲
                             start_offset (SPSO)                       end_offset
    after a load                                ├── gap ───┤   unread: fetched before what is AVAILABLE

A run is a stretch of contiguous offsets with one state. Finished runs at the head leave the window, and the start
offset moves behind them. The next fetch offset is the first unread or AVAILABLE offset, else the one behind the end.
"""
