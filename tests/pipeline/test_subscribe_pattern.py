"""`subscribePattern`: a read of the topics that match, and of those that are created while it runs."""

import re
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from sharequeue_pipeline import ranges
from sharequeue_pipeline.options import source_options
from sharequeue_pipeline.source.group_batch import GroupBatchReader
from sharequeue_pipeline.source.group_stream import GroupStreamReader
from sharequeue_pipeline.source.log_batch import LogBatchReader
from sharequeue_pipeline.source.log_stream import LogStreamReader

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.test_readers import SCHEMA

ALL = ReadMaxRows(1000)


def reader_of(stack: Stack, pattern: str, **options: str) -> LogStreamReader | GroupStreamReader:
    given = source_options({"url": stack.url, "subscribePattern": pattern, **options})
    if given.mode == "log":
        return LogStreamReader(given, SCHEMA)
    return GroupStreamReader(given, SCHEMA)


def topics_of(offset: dict[str, Any]) -> list[str]:
    """The topics of an offset, of the log or of a group."""
    return list(offset["log"]) if "log" in offset else [entry.topic for entry in ranges.decode(offset["ranges"])]


@pytest.mark.parametrize("mode", ["group", "log"])
def test_a_stream_finds_new_topics(stack: Stack, gateway: Gateway, name: str, mode: str) -> None:
    reader = reader_of(stack, f"{name}-[a-z]", mode=mode, **({"group": name} if mode == "group" else {}))
    offset = reader.initialOffset()
    assert reader.latestOffset(offset, ALL) == offset, "there is none yet"
    for topic in ("a", "b", "bb"):
        gateway.produce(f"{name}-{topic}", 1, 2)

        def following() -> bool:
            nonlocal offset
            before, offset = offset, reader.latestOffset(offset, ALL)
            return before != offset

        if topic != "bb":
            wait_for(following, f"records of {topic}")
            assert [
                (entry.topic, entry.size) for share in reader.partitions(offset, offset) for entry in share.value[1]
            ] == []
            taken = topics_of(offset)
            assert f"{name}-{topic}" in taken
            assert f"{name}-bb" not in taken
        else:
            assert not following()
    reader.stop()


def test_dead_letter_topics_do_not_match(stack: Stack, gateway: Gateway, name: str) -> None:
    """The names that begin with `dlq.`, and the one that the group names."""
    for group in (name, f"{name}-2"):
        gateway.configure(group, errors_deadletterqueue_topic_name=f"{name}-dead")
    for topic in (f"{name}-in", f"dlq.{name}-in", f"{name}-dead"):
        gateway.produce(topic, topic)
    pattern = f".*{re.escape(name)}-.*"
    stream = reader_of(stack, pattern, group=name)
    offset = stream.latestOffset(stream.initialOffset(), ALL)
    assert topics_of(offset) == [f"{name}-in"]
    assert stream.latestOffset(offset, ALL) == offset
    stream.stop()
    given = {"url": stack.url, "subscribePattern": pattern, "parallelism": "1"}
    of_group = GroupBatchReader(source_options({**given, "group": f"{name}-2", "accept": "read"}), SCHEMA)
    of_log = LogBatchReader(source_options(given), SCHEMA)
    for batch_reader, expected in ((of_group, [f"{name}-in"]), (of_log, [f"{name}-dead", f"{name}-in"])):
        (task,) = batch_reader.partitions()
        assert (
            sorted(topic for batch in batch_reader.read(task) for topic in batch.column("topic").to_pylist())
            == expected
        )


def test_a_batch_reads_the_topics_that_match(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    for topic in ("a", "b", "bb"):
        gateway.produce(f"{name}-{topic}", 1)
    assert pipeline.read(subscribePattern=f"{name}-.").count() == 2
    assert pipeline.read(subscribePattern=f"{name}-none").count() == 0
