"""Reading with `format("sharequeue")`: four readers, and the parts that they share.

    what is read    `spark.read`, a batch                `spark.readStream`, a stream
    a share group   group_batch: each task acquires,     group_stream: the driver acquires and accepts
                    reads and accepts                    (group_member), tasks read (range_reads)
    the log,        log_batch                              log_stream
    without locks

`data_source` makes the readers, and Spark calls them. `session` adds query_end, which listens for the end of a query.

The life of micro-batch n of a share group, and what a restart does if the driver is killed:

    killed in    driver                                    tasks
        A        gather: fetch ranges, lock them
    ──────────── offsets/n in the checkpoint: ranges and member id ────────────────────
        B        a thread renews the locks                 read the ranges from the log,
                                                           process, write
    ──────────── commits/n in the checkpoint: batch n is finished ─────────────────────
        C        settle: accept n, then gather n + 1

- A: the restart repeats the fetches under the same fetch ids, and gets the same ranges. Before the first batch the
  checkpoint has no member id: those locks run out.
- B: Spark runs batch n again. The driver renews each range first, and leaves out the ranges it has lost.
- C: Spark passes n to `latestOffset`, and the driver accepts it. Ranges whose locks have ended are delivered again.

A transactional sink accepts n itself, in the commit that makes its rows visible (`sink/transactions`).

A query that ends or fails in a living driver needs no restart: query_end accepts the finished batch, and releases or
rejects the failed one. If a task fails, Spark repeats it over the same ranges. A restart after a batch that did not
finish reads the records that were delivered before in small batches (isolation), because one of them may have ended the
query.
"""
