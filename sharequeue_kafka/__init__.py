"""Kafka as brokers speak it: topics, ends, reads, appends and transactions of a cluster. Knows no queue.

    cluster.py      topics, settings, partitions, ends: what an administrator asks
    fetching.py     reads by offset, gathered by broker
    following.py    one long Fetch a broker that says when logs move
    batches.py      the bytes of a Fetch, as records
    producing.py    idempotent appends;  transactions.py  appends in transactions, with fencing
    requests.py     the requests that aiokafka lacks;  connections.py  one connection a broker and purpose

A partition is named by its topic's id and its number (`Place`), so that a topic that was made again under its name is
another topic. Brokers must know topic ids in Fetch (Kafka 3.1 and later).
"""
