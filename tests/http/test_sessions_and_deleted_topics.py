"""Share sessions whose topics are deleted: each member gets one error, and the other topics keep working."""

from tests.http.calls import LONG_MS, Gateway, Json, woken


def delete(gateway: Gateway, topic: str) -> str:
    """Delete a topic. Returns: its id."""
    topic_id: str = gateway.describe_topic(topic)["topic_id"]
    assert gateway.http.delete(f"/v1/topics/{topic}").status_code == 204
    return topic_id


def faults(answer: Json) -> list[tuple[str, int, int]]:
    return sorted((fault["topic"], fault["partition"], fault["kafka_code"]) for fault in answer["errors"])


def test_a_session_reports_its_deleted_topic_once(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name, partitions=2)
    gateway.acquire(name, name, share_session_epoch=0)
    topic_id = delete(gateway, name)
    with woken(gateway):
        answer = gateway.fetch(name, share_session_epoch=1, max_wait_ms=LONG_MS)
    assert faults(answer) == [(topic_id, 0, 100), (topic_id, 1, 100)]

    assert faults(gateway.fetch(name, share_session_epoch=2)) == []
    gateway.produce(name, "of the topic that has the name now")
    assert gateway.acquire(name, share_session_epoch=3, topics=[name]) == ["0-0×1"]


def test_the_other_topics_of_a_session_keep_working(gateway: Gateway, name: str) -> None:
    other = f"{name}-other"
    for topic in (name, other):
        gateway.create_topic(topic)
    gateway.acquire(name, topics=[name, other], share_session_epoch=0)
    topic_id = delete(gateway, name)
    gateway.produce(other, "one")
    answer = gateway.fetch(name, share_session_epoch=1)
    assert faults(answer) == [(topic_id, 0, 100)]
    assert [batch["topic"] for batch in answer["batches"]] == [other]
    assert faults(gateway.fetch(name, share_session_epoch=2)) == []
