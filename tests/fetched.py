"""A delivery, as a fetch answers it and a client holds it."""

from collections.abc import Sequence

from sharequeue.client.consuming.deliveries import Delivery
from sharequeue.protocol.messages.records import ConsumerRecord, FetchedBatch


def delivery_of(
    first_offset: int,
    last_offset: int,
    records: Sequence[ConsumerRecord] = (),
    *,
    partition: int = 0,
    delivery_count: int = 1,
) -> Delivery:
    """The range of a topic `t`, both offsets included, without the records that are not given."""
    batch = FetchedBatch(
        topic="t",
        topic_id="id",
        partition=partition,
        first_offset=first_offset,
        last_offset=last_offset,
        delivery_count=delivery_count,
        lock_expires_at_ms=0,
        lock_duration_ms=30_000,
        attempt=1,
        records=list(records),
    )
    return Delivery(batch)
