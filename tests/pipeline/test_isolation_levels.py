"""Reading committed records: of the log up to the last stable offset, of a group by the group's own level."""

from typing import Any

import pytest

from tests.http.calls import Gateway, good
from tests.pipeline.conftest import Pipeline
from tests.pipeline.test_source import numbers, settled


def begin(gateway: Gateway) -> str:
    return str(gateway.http.post("/v1/transactions", json={"timeout_ms": 600_000}).json()["transaction_id"])


def send(gateway: Gateway, topic: str, transaction: str | None, *values: int) -> None:
    headers = {} if transaction is None else {"Transaction-Id": transaction}
    records = {"records": [{"value": value} for value in values]}
    good(gateway.http.post(f"/v1/topics/{topic}/records", json=records, headers=headers))


def end(gateway: Gateway, transaction: str, how: str) -> None:
    good(gateway.http.post(f"/v1/transactions/{transaction}/{how}", json={}))


def filled(gateway: Gateway, topic: str) -> str:
    """0 and 5 without a transaction, 1 and 2 aborted, 3 committed, 4 open. Returns: the open one."""
    gateway.create_topic(topic)
    aborted, committed, still_open = (begin(gateway) for _ in range(3))
    send(gateway, topic, None, 0)
    send(gateway, topic, aborted, 1, 2)
    send(gateway, topic, committed, 3)
    end(gateway, aborted, "abort")
    end(gateway, committed, "commit")
    send(gateway, topic, still_open, 4)
    send(gateway, topic, None, 5)
    return still_open


COMMITTED: dict[str, Any] = {"isolationLevel": "read_committed", "valueFormat": "string"}


def test_a_batch_read_ends_at_the_last_stable_offset(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    still_open = filled(gateway, name)
    assert numbers(pipeline.read(topics=name, valueFormat="string")) == [0, 1, 2, 3, 4, 5], "as Kafka's default"
    assert numbers(pipeline.read(topics=name, **COMMITTED)) == [0, 3]
    end(gateway, still_open, "commit")
    assert numbers(pipeline.read(topics=name, **COMMITTED)) == [0, 3, 4, 5]


def test_a_task_reads_no_record_of_the_next_one(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    """A page counts records. Behind aborted ones it went on into the range of the next task, so records came twice."""
    gateway.create_topic(name)
    aborted = begin(gateway)
    send(gateway, name, aborted, *range(5))
    end(gateway, aborted, "abort")
    send(gateway, name, None, *range(5, 20))
    for tasks in (1, 3):
        assert numbers(pipeline.read(topics=name, parallelism=tasks, **COMMITTED)) == list(range(5, 20))


def test_a_stream_of_the_log_waits_for_the_end_of_a_transaction(
    pipeline: Pipeline, gateway: Gateway, name: str
) -> None:
    still_open = filled(gateway, name)
    rows = pipeline.stream(topics=name, mode="log", **COMMITTED)
    pipeline.drain(rows)
    assert numbers(pipeline.out()) == [0, 3]
    end(gateway, still_open, "commit")
    pipeline.drain(rows)
    assert numbers(pipeline.out()) == [0, 3, 4, 5]


@pytest.mark.soak
def test_a_query_may_turn_to_committed_records(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    """Its checkpoint lies behind the last stable offset."""
    still_open = filled(gateway, name)
    pipeline.drain(pipeline.stream(topics=name, mode="log", valueFormat="string"))
    assert numbers(pipeline.out()) == [0, 1, 2, 3, 4, 5]
    rows = pipeline.stream(topics=name, mode="log", **COMMITTED)
    pipeline.drain(rows)
    end(gateway, still_open, "abort")
    send(gateway, name, None, 6)
    pipeline.drain(rows)
    assert numbers(pipeline.out()) == [0, 1, 2, 3, 4, 5, 6]


def test_a_group_reads_by_its_own_level(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    still_open = filled(gateway, name)
    rows = pipeline.stream(topics=name, group=name, **COMMITTED)
    with pytest.raises(Exception, match=f"(?s)groups config {name} --set share.isolation.level=read_committed"):
        pipeline.drain(rows)
    with pytest.raises(Exception, match="it holds for all members"):
        pipeline.read(topics=name, group=name, accept="read", **COMMITTED).collect()
    gateway.configure(name, share_isolation_level="read_committed")
    pipeline.drain(rows)
    assert numbers(pipeline.out()) == [0, 3]
    end(gateway, still_open, "commit")
    pipeline.drain(pipeline.stream(topics=name, group=name, valueFormat="string"))
    assert numbers(pipeline.out()) == [0, 3, 4, 5]
    assert settled(gateway, name, name), "markers and aborted records count as finished"


def test_a_batch_read_of_a_group_has_committed_records_alone(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    filled(gateway, name)
    gateway.configure(name, share_isolation_level="read_committed")
    assert numbers(pipeline.read(topics=name, group=name, accept="read", **COMMITTED)) == [0, 3]
