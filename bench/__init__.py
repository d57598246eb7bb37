"""Measurements. Each program starts its own stack and prints a table; docs/benchmarks.md has the results.

    python -m bench            throughput beside Redis Streams and PGMQ (`make bench`); workloads.py, queues.py
    python -m bench.hostile    the largest requests of one client: CPU, stalls, memory (`make hostile`)
    python -m bench.named      fetches by the number of partitions that they name: the gateway's CPU, and its bar
    python -m bench.gateways   one hot partition, and eight topics, through one to three gateways
    python -m bench.kafka      W2 beside Kafka's own share consumer; needs Java with Maven
    python -m bench.kafka_log  the log in Kafka beside the log in PostgreSQL and Kafka's share consumer; needs Java, too
    python -m bench.groups     10,000 groups of ten share-partitions
    python -m bench.state      10,000 delayed records beside none: CPU, WAL, time, memory and load, and their bars
    python -m bench.beside     W2 with kept outcomes, beside 1,000,000 scheduled records, and by a worker, in turns
    python -m bench.pages      what 20 open pages of /ui do to the calls of others; needs Chromium
    python -m bench.floors     2,000 groups that read 50 partitions: a sweep of the log, raises of floors
    python -m bench.assignor   assigning 10,000 partitions to 1,000 members; in this process, without a stack
    python -m bench.memory     bytes per idle share-partition and per batch in flight; in this process, without a stack

`single_records.py` and `stops.py` belong to `bench.state`, `record_logs.py` to `bench.kafka_log`. `processes.py` reads
CPU time and memory of processes from /proc; tests use it too.
"""
