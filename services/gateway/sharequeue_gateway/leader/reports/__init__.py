"""Counts about the led share-partitions: for reports, and for metrics.

    activity      deliveries, outcomes and dead letters by hour; written to the log's database from time to time
    led_metrics   gauges of what is led now
    queue_series  what each group has to do in each topic, as metrics with a bound on their number
    backlog       what each group has not finished, read from the log by one gateway for all
    sampler       samples of the cluster, each group and each topic, over time: `sampling` keeps them, `figures` are of
                  one gateway

The events of `leader` report here as they happen. The room decides nothing about a record: a count that is lost changes
no delivery. Of the leader it knows `led_share_partition` alone.
"""
