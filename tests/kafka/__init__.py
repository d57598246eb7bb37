"""`make kafka-test`: the same random scripts of transactions on a real Kafka broker and on sharequeue.

```
scripts.py ── a seed's steps ──▶ comparison.py ──┬─▶ kafka.py      lines of JSON ─▶ Broker.java (Kafka's own jars)
                                                 └─▶ sharequeue.py calls over HTTP ▶ the three services
```

Both sides must deliver the same records, at the same offsets and with the same delivery counts, and must have the same
LASTSTABLE, start offsets and lag. docs/transactions.md lists what differs, and why.
"""
