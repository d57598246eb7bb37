"""`make kafka-test`: the same random scripts of transactions on a real Kafka broker and on sharequeue.

```
scripts.py ── a seed's steps ──▶ comparison.py ──┬─▶ kafka.py      lines of JSON ─▶ Broker.java (Kafka's own jars)
                                 for each player └─▶ sharequeue.py calls over HTTP ▶ the three services
```

Several players (playing.py) play at a time, on one broker and one stack, because most of a script's time is waits. Each
script has a topic and groups of its own. With `--record-log kafka` (same_topic.py) both sides read the same topics, and
crash once in each script: the players wait for one another, and the last one kills the broker and the gateway for all.

Both sides must deliver the same records, at the same offsets and with the same delivery counts, and must have the same
LASTSTABLE, start offsets and lag. docs/transactions.md lists what differs, and why.
"""
