"""Produce: turns the records of a request into appends, one per partition.

Decides: the bytes of each record (`record_tails`, `record_keys`; of an Arrow stream `arrow_columns`, `arrow_tails`),
its partition (`producer`, `arrow_producer`, with Kafka's hash of keys in `partitioner`), and the answer. The HTTP
handlers call `Producer.produce` and `ArrowProducer.produce`. The record log makes the appends durable and gives them
offsets. How many bytes of requests the gateway takes at a time is decided before (by the endpoint).

    request ─▶ record_tails ─▶ one append per partition ─▶ record_log.Appender ─▶ offsets ─▶ answer
                 422             413, 404                    all or none, durable
"""
