"""Kafka's log through the suite of record logs."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final

import pytest

from tests.kafka_log.brokers import Brokers
from tests.kafka_log.record_logs import KafkaRecordLogs
from tests.storage.record_log_suite import RecordLogSuite

DEADLINE_S = 120  # for a hang

TRANSACTIONAL: Final = (
    "test_a_key_belongs_to_caller_path_and_topic",
    "test_a_refused_append_leaves_its_key_free",
    "test_a_repeat_with_a_key_gets_the_first_answer",
    "test_another_request_with_a_used_key_is_refused",
    "test_concurrent_repeats_append_once",
)
LACKING: Final = {
    **dict.fromkeys(
        TRANSACTIONAL, "keys: test_appends plays them, since the end of a transaction takes an offset, too"
    ),
    "test_a_refused_append_of_several_partitions_stores_nothing": "atomic appends over partitions",
    "test_a_large_append_of_several_partitions_is_stored_whole_or_not_at_all": "atomic appends over partitions",
    "test_appends_of_one_commit_are_reported_once_for_each_partition": "commits: each append is reported",
    "test_one_append_makes_one_batch": "batches: Kafka's clients and brokers make them",
    "test_the_log_end_of_a_read_covers_its_records": "news: a gateway hears of the appends of others a moment later",
    "test_retention_by_time": "retention: Kafka's",
    "test_retention_by_bytes": "retention: Kafka's",
    "test_a_local_append_is_reported_at_once": "retention: Kafka's",
    "test_a_watcher_is_notified_when_a_known_log_end_is_forgotten": "deletion: group coordinators tell of it",
}
"""The tests of the suite that are left out, and why."""


@pytest.fixture(scope="module")
def database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture
def record_log(kafka: Brokers, database: str) -> KafkaRecordLogs:
    return KafkaRecordLogs(kafka, database)


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def within(self: object, record_log: KafkaRecordLogs) -> None:
        async def play() -> None:
            async with asyncio.timeout(DEADLINE_S):
                await test(self, record_log)

        asyncio.run(play())

    return within


class TestOnKafka(RecordLogSuite):
    """Each test of the suite that is not left out."""


for _name, _test in inspect.getmembers(RecordLogSuite, inspect.iscoroutinefunction):
    setattr(TestOnKafka, _name, None if _name in LACKING else run(_test))


def test_what_is_left_out_is_in_the_suite() -> None:
    assert all(hasattr(RecordLogSuite, name) for name in LACKING)
