"""The readers without Spark: a test calls them as Spark does, and watches the gateway."""

import json
import re
import threading
import time
from typing import Any

import pytest
from pyspark.sql import types as spark
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows
from sharequeue_pipeline import data_source, ranges
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.group_client import GroupClient
from sharequeue_pipeline.options import SourceOptions, source_options
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.group_batch import GroupBatchReader
from sharequeue_pipeline.source.group_stream import GroupStreamReader
from sharequeue_pipeline.source.lock_renewal import LockRenewal
from sharequeue_pipeline.source.log_batch import LogBatchReader
from sharequeue_pipeline.source.log_stream import LogStreamReader

from sharequeue.client.consuming.outcomes import ACCEPT
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, wait_until
from tests.http.database import sql
from tests.pipeline.proxy import Instead, Proxy
from tests.pipeline.test_source import lock_ends_ms, produce, settled

BINARY, TEXT = spark.BinaryType(), spark.StringType()
SCHEMA = spark.StructType(
    [
        spark.StructField("topic", TEXT),
        spark.StructField("partition", spark.IntegerType()),
        spark.StructField("offset", spark.LongType()),
        spark.StructField("timestamp", spark.TimestampType()),
        spark.StructField("key", BINARY),
        spark.StructField("value", BINARY),
        spark.StructField("headers", spark.MapType(TEXT, TEXT)),
        spark.StructField("delivery_count", spark.IntegerType()),
    ]
)
LIMIT = ReadMaxRows(10)


def options_of(stack: Stack, name: str, **options: Any) -> SourceOptions:
    given = {"url": stack.url, "topics": name, **({} if "mode" in options else {"group": name}), **options}
    return source_options({key: str(value) for key, value in given.items()})


def renewals() -> list[threading.Thread]:
    """Threads that renew locks in this process."""
    return [thread for thread in threading.enumerate() if thread.name == "sharequeue renewal"]


def stream_reader(stack: Stack, name: str, **options: Any) -> GroupStreamReader:
    return GroupStreamReader(options_of(stack, name, **options), SCHEMA)


# Bounded reads


def test_records_produced_during_a_batch_read_use_up_one_delivery(stack: Stack, gateway: Gateway, name: str) -> None:
    """Giving them back would count a delivery at each fetch, and make them dead letters that no task has read."""
    gateway.configure(name, share_partition_max_record_locks=100)
    gateway.create_topic(name, 2)
    gateway.produce(name, 0, partition=0)
    gateway.produce(name, *range(1000), partition=1)
    reader = GroupBatchReader(options_of(stack, name, accept="read", parallelism=1), SCHEMA)
    (partition,) = reader.partitions()
    gateway.produce(name, "later", partition=0)
    read = [row for batch in reader.read(partition) for row in batch.to_pylist()]
    later = [row["delivery_count"] for row in read if row["value"] == b'"later"']
    later += [batch["delivery_count"] for batch in gateway.fetch(name, name)["batches"]]
    assert later == [1]
    assert sorted(int(row["value"]) for row in read if row["partition"] == 1) == list(range(1000))


LATER = 6000
"""Enough new records for all fetches, so that they never run out."""
PERCENT = 25
"""`share.redelivery.percent`. A read asks only whether it is 0; tests/core has that rule."""


def hold(gateway: Gateway, name: str, percent: int) -> None:
    """The member m holds the records 0 to 29 of 40."""
    gateway.configure(name, share_redelivery_percent=percent, share_delivery_count_limit=100)
    gateway.produce(name, *range(40))
    gateway.fetch(name, name, member="m", max_records=30)


def release(gateway: Gateway, name: str, percent: int) -> None:
    """Release them. The next 99 fetches may begin at new records."""
    gateway.settle(name, name, 0, 29, "release", member="m")
    if percent:
        (batch,) = gateway.fetch(name, name, member="m", max_records=1)["batches"]
        assert batch["first_offset"] == 0
        gateway.settle(name, name, 0, 0, "release", member="m")


def growing_stream(stack: Stack, gateway: Gateway, name: str, percent: int) -> tuple[GroupStreamReader, Any, list[int]]:
    """An availableNow query with one batch done, when records were released and many new ones came.
    The offsets so far."""
    hold(gateway, name, percent)
    reader = stream_reader(stack, name)
    reader.prepareForTriggerAvailableNow()
    offset = reader.latestOffset(reader.initialOffset(), ReadMaxRows(4))
    release(gateway, name, percent)
    gateway.produce(name, *range(LATER))
    return reader, offset, offsets_of(offset)


def offsets_of(offset: Any) -> list[int]:
    return [
        each for entry in ranges.decode(offset["ranges"]) for each in range(entry.first_offset, entry.last_offset + 1)
    ]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "batch"])
def test_a_bounded_read_has_the_records_that_others_released(
    stack: Stack, gateway: Gateway, name: str, stream: bool
) -> None:
    """A group gives new records a share of the fetches, so the last record may come before those to deliver again."""
    taken: list[int] = []
    if stream:
        reader, offset, taken = growing_stream(stack, gateway, name, PERCENT)
        while (following := reader.latestOffset(offset, ReadMaxRows(10))) != offset:
            offset = following
            taken += offsets_of(offset)
        reader.stop()
    else:
        hold(gateway, name, PERCENT)
        release(gateway, name, PERCENT)
        batch_reader = GroupBatchReader(options_of(stack, name, accept="read", parallelism=1), SCHEMA)
        (partition,) = batch_reader.partitions()
        gateway.produce(name, *range(LATER))
        for batch in batch_reader.read(partition):
            taken += batch.column("offset").to_pylist()
    assert sorted(offset for offset in taken if offset < 40) == list(range(40))
    assert len(taken) < 40 + LATER, "it ends although there are new records"


def test_a_bounded_read_is_refused_where_released_records_may_never_come(
    stack: Stack, gateway: Gateway, name: str
) -> None:
    """A stream fails when they do not come, and holds nothing then.
    A batch fails at its start: it loses what it reads."""
    why = (
        f"30 records wait to be delivered again to group {name}, the first at {name}-0 offset 0, .* Set it to 1 or more"
    )
    reader, offset, taken = growing_stream(stack, gateway, name, 0)
    fault = ""
    for _ in range(100):
        try:
            offset = reader.latestOffset(offset, ReadMaxRows(1000))
        except PipelineError as refused:
            fault = str(refused)
            break
        taken += offsets_of(offset)
    reader.stop()
    assert re.fullmatch(why, fault)
    assert set(range(30, 40)) <= set(taken)
    assert not [batch for entry in gateway.in_flight(name) for batch in entry["batches"] if batch.get("member_id")]
    batch_reader = GroupBatchReader(options_of(stack, name, accept="read", parallelism=1), SCHEMA)
    with pytest.raises(PipelineError, match=why):
        batch_reader.partitions()


# A batch that is planned again


def test_offsets_of_a_recreated_topic_are_refused(stack: Stack, gateway: Gateway, name: str) -> None:
    """After a restart, Spark asks for the tasks of a batch that it has planned before, and not for its offsets."""
    produce(gateway, name, 4)
    options = options_of(stack, name, mode="log")
    before = LogStreamReader(options, SCHEMA)
    start = before.initialOffset()
    end = before.latestOffset(start, LIMIT)
    assert before.partitions(start, end)
    assert gateway.http.delete(f"/v1/topics/{name}").status_code == 204
    produce(gateway, name, 4)
    after = LogStreamReader(options, SCHEMA)
    with pytest.raises(PipelineError, match="was deleted and created again"):
        after.partitions(start, end)
    with pytest.raises(PipelineError, match="was deleted and created again"):
        before.latestOffset(end, LIMIT)
    for reader in (before, after):
        reader.stop()


def test_a_first_batch_that_is_repeated_has_its_records(stack: Stack, gateway: Gateway, name: str) -> None:
    """Spark asks again where the first batch begins, and by then `latest` is another offset."""
    produce(gateway, name, 4)
    options = options_of(stack, name, mode="log", startingOffsets="latest", parallelism=1)
    before, after = LogStreamReader(options, SCHEMA), LogStreamReader(options, SCHEMA)
    start = before.initialOffset()
    produce(gateway, name, 3, first=4)
    end = before.latestOffset(start, LIMIT)
    assert [task.value for task in after.partitions(after.initialOffset(), end)] == [
        task.value for task in before.partitions(start, end)
    ]
    for reader in (before, after):
        reader.stop()


def test_records_deleted_before_a_task_reads_them_fail_the_read(stack: Stack, gateway: Gateway, name: str) -> None:
    """Between the plan of a batch and its tasks. With failOnDataLoss=false the task skips them."""
    produce(gateway, name, 10)
    strict, lenient = (
        LogBatchReader(options_of(stack, name, mode="log", parallelism=1, failOnDataLoss=fail), SCHEMA)
        for fail in (True, False)
    )
    (planned,) = strict.partitions()
    gateway.delete_records(name, 4)
    with pytest.raises(PipelineError, match=f"{name}-0: the offsets 0 to 3 were deleted"):
        list(strict.read(planned))
    assert sum(batch.num_rows for batch in lenient.read(planned)) == 6


@pytest.mark.parametrize("partition", [None, InputPartition(None)])
def test_a_read_without_records_has_one_task_that_reads_nothing(partition: Any) -> None:
    """Spark before 4.2 gives it None, and later versions a partition without a value."""
    reader = LogBatchReader(source_options({"topics": "t", "mode": "log"}), SCHEMA)
    assert list(reader.read(partition)) == []


def test_an_older_spark_refuses_a_stream_of_a_group_before_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be of no use to leave these out."""
    monkeypatch.setattr(data_source, "reaches", lambda *_: False)
    source = data_source.ShareQueueDataSource({"topics": "t", "group": "g", "maxRecordsPerTrigger": "5"})
    with pytest.raises(PipelineError, match=r"^a stream of a group needs Spark"):
        source.streamReader(SCHEMA).initialOffset()


def test_a_damaged_batch_of_the_log_is_named(stack: Stack, stack_database: str, gateway: Gateway, name: str) -> None:
    """The gateway sends a compressed batch as it is, so the reader finds the damage."""
    gateway.create_topic(name)
    for text in ("first", "x" * 10_000):
        gateway.produce(name, text)
    topic_id = gateway.describe_topic(name)["topic_id"]
    damage = "UPDATE log.record_batches SET records = substr(records, 1, 60) WHERE topic_id = $1 AND base_offset = 1"
    sql(stack_database, damage, topic_id)
    reader = LogBatchReader(options_of(stack, name, mode="log", parallelism=1), SCHEMA)
    (planned,) = reader.partitions()
    with pytest.raises(PipelineError, match=f"^{name}-0: the gateway's answer from offset 0 on is damaged: .*LZ4"):
        list(reader.read(planned))


def test_a_restart_leaves_out_lost_ranges_each_time_spark_plans_the_batch(
    stack: Stack, gateway: Gateway, name: str
) -> None:
    """A query that uses its source twice, as in a union with itself, plans each batch twice."""
    produce(gateway, name, 4, partitions=2)
    before = stream_reader(stack, name)
    start = before.initialOffset()
    end = before.latestOffset(start, LIMIT)
    before.stop()
    assert gateway.settle(name, name, 0, 1, "accept", member=end["member_id"]) == "applied"
    after = stream_reader(stack, name)
    for _ in range(2):
        planned = after.partitions(start, end)
        assert [(entry.partition, entry.size) for share in planned for entry in share.value[1]] in (
            [(1, 2)],
            [(1, 1)] * 2,
        )
    assert after.latestOffset(end, LIMIT) == end
    after.stop()
    assert settled(gateway, name, name)


def test_a_refused_acknowledgement_is_tried_twice(stack: Stack, gateway: Gateway, name: str) -> None:
    """The first refusal may have a passing cause: another write, or a hand-over, of the share-partition."""
    produce(gateway, name, 5)
    result = {"topic": name, "partition": 0, "first_offset": 0, "last_offset": 2, "status": "failed"}
    result |= {"code": "INVALID_RECORD_STATE", "kafka_code": 121, "retriable": False, "detail": "not now"}
    problem = {
        "type": "x",
        "title": "x",
        "status": 409,
        "code": "INVALID_RECORD_STATE",
        "kafka_code": 121,
        "detail": "no",
    }
    problem |= {"retriable": False, "definite": True, "request_id": "r", "results": [result], "failed_count": 1}
    refused: list[str] = []

    def rule(method: str, path: str, headers: dict[str, str]) -> Instead | None:
        if path.endswith("/acknowledge") and not refused:
            refused.append(path)
            return Instead(409, {"Content-Type": "application/problem+json"}, json.dumps(problem).encode())
        return None

    with Proxy(stack.url).running() as proxy, GroupClient(options_of(stack, name, url=proxy.url).gateway) as to:
        proxy.rule = rule
        gateway.fetch(name, name, member="m", max_records=3)
        assert to.settle(name, "m", [(Range(name, 0, 0, 2, 1), ACCEPT)]) == []
        assert refused
        assert to.settle(name, "m", [(Range(name, 0, 3, 4, 1), ACCEPT)]) == [Range(name, 0, 3, 4, 1)]
    assert gateway.offsets(name)[name, 0][1] == 2


# Renewing


@pytest.mark.parametrize("whole", [True, False], ids=["read to its end", "abandoned"])
def test_a_batch_read_leaves_no_thread_behind(stack: Stack, gateway: Gateway, name: str, whole: bool) -> None:
    """Spark's worker processes outlive their tasks, so the thread would renew until they end."""
    produce(gateway, name, 10)
    reader = GroupBatchReader(options_of(stack, name, accept="read", parallelism=1), SCHEMA)
    reading: Any = reader.read(reader.partitions()[0])
    next(reading)
    assert renewals()
    if whole:
        list(reading)
    else:
        reading.close()
    wait_until(lambda: not renewals())


def test_a_stream_that_is_stopped_leaves_no_thread_behind(stack: Stack, gateway: Gateway, name: str) -> None:
    produce(gateway, name, 10)
    reader = stream_reader(stack, name)
    reader.latestOffset(reader.initialOffset(), LIMIT)
    assert renewals()
    reader.stop()
    wait_until(lambda: not renewals())


def test_a_growing_batch_is_renewed_in_time(stack: Stack, gateway: Gateway, name: str) -> None:
    """Records near their delivery limit come one by one, so gathering a batch can take longer than a lock lasts."""
    produce(gateway, name, 1)
    gateway.fetch(name, name, member="m")
    renewal = LockRenewal(options_of(stack, name).gateway, name, "m")

    def grows_until_renewed() -> bool:
        renewal.hold(1, [Range(name, 0, 0, 0, 1)], 1500)  # renewed as often as a lock of 1.5 s
        time.sleep(0.1)
        return lock_ends_ms(gateway, name) > [before_ms]

    for _ in range(3):
        (before_ms,) = lock_ends_ms(gateway, name)
        wait_until(grows_until_renewed)
    renewal.close()
    assert gateway.settle(name, name, 0, 0, "accept", member="m", delivery_count=1) == "applied"


def test_locks_are_not_renewed_if_the_group_forbids_it(stack: Stack, gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_renew_acknowledge_enable="false")
    produce(gateway, name, 4)
    reader = stream_reader(stack, name)
    offset = reader.latestOffset(reader.initialOffset(), LIMIT)
    topic_id = gateway.describe_topic(name)["topic_id"]
    assert ranges.decode(offset["ranges"]) == [Range(name, 0, 0, 3, 1, topic_id)]
    assert not renewals()
    assert reader.latestOffset(offset, LIMIT) == offset
    reader.stop()
    assert settled(gateway, name, name)


# What a micro-batch may take, and what a restart finds


@pytest.mark.parametrize(("mode", "most"), [("group", 4), ("log", 5)])
def test_a_micro_batch_has_so_many_bytes(stack: Stack, gateway: Gateway, name: str, mode: str, most: int) -> None:
    """Of a group, records are counted; of the log, stored batches."""
    gateway.create_topic(name, 1)
    for _ in range(4):
        gateway.produce(name, *("x" * 1000 for _ in range(5)))
    options = {"maxBytesPerTrigger": 5200, **({"mode": "log"} if mode == "log" else {})}
    reader: Any = LogStreamReader if mode == "log" else GroupStreamReader
    reader = reader(options_of(stack, name, **options), SCHEMA)
    reader.prepareForTriggerAvailableNow()
    offset, sizes = reader.initialOffset(), []
    while (following := reader.latestOffset(offset, ReadMaxRows(100))) != offset:
        sizes.append(sum(entry.size for part in reader.partitions(offset, following) for entry in part.value[1]))
        offset = following
    reader.stop()
    assert sum(sizes) == 20
    assert max(sizes) == most


def test_a_group_that_was_deleted_is_noticed(stack: Stack, gateway: Gateway, name: str) -> None:
    """With failOnDataLoss=false the query begins anew, and counts it."""
    produce(gateway, name, 10)
    first = stream_reader(stack, name)
    offset = first.latestOffset(first.initialOffset(), LIMIT)
    first.commit(offset)
    first.stop()
    assert gateway.try_delete_group(name, force=True).status_code == 204
    failing = stream_reader(stack, name)
    with pytest.raises(PipelineError, match=f"group {name} has no place in topic '{name}', which this query has read"):
        failing.latestOffset(offset, LIMIT)
    failing.stop()
    lenient = stream_reader(stack, name, failOnDataLoss=False)
    again = lenient.latestOffset(offset, LIMIT)
    lenient.stop()
    assert (offsets_of(again), again["lost"]) == (offsets_of(offset), 1)


def test_records_that_were_deleted_unread_are_noticed(stack: Stack, gateway: Gateway, name: str) -> None:
    """Finished records may go. With failOnDataLoss=false the query counts the others, once."""
    produce(gateway, name, 30)
    first = stream_reader(stack, name)
    offset = first.latestOffset(first.initialOffset(), LIMIT)
    first.commit(offset)
    gateway.delete_records(name, 5)
    offset = first.latestOffset(offset, ReadMaxRows(2))
    first.commit(offset)
    first.stop()
    gateway.delete_records(name, 20)
    failing = stream_reader(stack, name)
    with pytest.raises(
        PipelineError, match=f"8 offsets were deleted before group {name} read them; set failOnDataLoss"
    ):
        failing.latestOffset(offset, LIMIT)
    failing.stop()
    lenient = stream_reader(stack, name, failOnDataLoss=False)
    again = lenient.latestOffset(offset, ReadMaxRows(4))
    lenient.commit(again)
    last = lenient.latestOffset(again, LIMIT)
    lenient.stop()
    assert (offset["lost"], again["lost"], last["lost"]) == (0, 8, 8)
    ahead = last | {"removed": {name: {"0": 9}, f"{name}-gone": {"0": 5}}}
    gateway.produce(name, {"id": 1})
    follower = stream_reader(stack, name)
    assert follower.latestOffset(ahead, LIMIT)["removed"] == ahead["removed"], "a leader that counts less is behind"
    follower.stop()
