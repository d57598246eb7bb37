"""Calls that a type checker refuses. `# wrong` names mypy's code for the line. Nothing runs it."""

from sharequeue.client import Admin, Producer, Record, ShareConsumer, sync

URL = "http://127.0.0.1:8080"


async def with_async(producer: Producer, consumer: ShareConsumer, record: Record) -> None:
    await producer.send("orders")  # wrong: call-overload
    await producer.send("orders", 1, partition="0")  # wrong: call-overload
    await producer.sent("orders", 1)  # wrong: attr-defined
    (await producer.send("orders", 1)).offset.upper()  # wrong: attr-defined
    consumer.acknowledge(record, "acept")  # wrong: arg-type
    consumer.acknowledge(record.offset)  # wrong: arg-type
    await consumer.poll("soon")  # wrong: arg-type
    ShareConsumer(URL, "billing", acknowledgement="manual")  # wrong: arg-type
    (await ShareConsumer(URL, "billing", value_type=int).poll())[0].value.upper()  # wrong: attr-defined
    record.offset = 1  # wrong: misc
    print(record.valu)  # wrong: attr-defined


async def managed(admin: Admin) -> None:
    await admin.create_topic("orders", partition=4)  # wrong: call-arg
    await admin.reset_share_group_offsets("billing", "first")  # wrong: arg-type
    print((await admin.describe_topic("orders")).offset)  # wrong: attr-defined
    print(admin.list_topics().name)  # wrong: attr-defined


def without_async(producer: sync.Producer, consumer: sync.ShareConsumer, record: Record) -> None:
    producer.send("orders")  # wrong: call-overload
    producer.send("orders", 1, partition="0")  # wrong: call-overload
    producer.sent("orders", 1)  # wrong: attr-defined
    producer.send("orders", 1).offset.upper()  # wrong: attr-defined
    consumer.acknowledge(record, "acept")  # wrong: arg-type
    consumer.poll("soon")  # wrong: arg-type
    consumer.commit().result()  # wrong: attr-defined
    sync.ShareConsumer(URL, "billing", acknowledgement="manual")  # wrong: arg-type
    sync.Producer(URL, linger=5)  # wrong: call-arg
