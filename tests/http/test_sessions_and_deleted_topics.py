"""Share sessions whose topics are deleted, made again, or grow: each member gets one error, and all that comes."""

from concurrent.futures import ThreadPoolExecutor

from tests.http.calls import LONG_MS, Gateway, Json, good, wait_until, woken

WAITING = "sharequeue_waiting_fetches"


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


def test_a_session_waits_for_its_topic(gateway: Gateway, background: ThreadPoolExecutor, name: str) -> None:
    """Its topic is deleted and made again; the session has the new one without naming it."""
    for topic in (name, f"{name}-other"):
        gateway.create_topic(topic)
    gateway.acquire(name, name, share_session_epoch=0)
    delete(gateway, name)
    assert len(faults(gateway.fetch(name, share_session_epoch=1))) == 1
    before = gateway.metrics()[WAITING]
    waiting = background.submit(gateway.fetch, name, share_session_epoch=2, max_wait_ms=LONG_MS)
    control = background.submit(gateway.fetch, name, f"{name}-other", member="control", max_wait_ms=LONG_MS)
    wait_until(lambda: gateway.metrics()[WAITING] == before + 2)
    gateway.produce(name, "of the topic that has the name now")
    assert waiting.result()["batches"] == []
    assert not control.done()
    assert gateway.acquire(name, share_session_epoch=3, max_wait_ms=LONG_MS) == ["0-0×1"]
    gateway.http.delete(f"/v1/share-groups/{name}/members/control")


def test_new_partitions_reach_those_who_wait(gateway: Gateway, background: ThreadPoolExecutor, name: str) -> None:
    """In a session, and without one. A fetch of another topic waits on."""
    for topic in (name, f"{name}-other"):
        gateway.create_topic(topic)
    gateway.acquire(name, name, share_session_epoch=0)
    before = gateway.metrics()[WAITING]
    in_session = background.submit(gateway.fetch, name, share_session_epoch=1, max_wait_ms=LONG_MS)
    without = background.submit(gateway.fetch, name, name, member="without", max_wait_ms=LONG_MS)
    control = background.submit(gateway.fetch, name, f"{name}-other", member="control", max_wait_ms=LONG_MS)
    wait_until(lambda: gateway.metrics()[WAITING] == before + 3)
    good(gateway.http.patch(f"/v1/topics/{name}", json={"partitions": 2}))
    assert [in_session.result()["batches"], without.result()["batches"]] == [[], []]
    assert not control.done()
    good(gateway.http.post(f"/v1/topics/{name}/records", json={"records": [{"value": "new", "partition": 1}]}))
    assert gateway.acquire(name, share_session_epoch=2, max_wait_ms=LONG_MS) == ["1:0-0×1"]
    gateway.http.delete(f"/v1/share-groups/{name}/members/control")
