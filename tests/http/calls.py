"""The gateway as a client uses it, for tests that look at the HTTP contract: one short method per call."""

import contextlib
import time
from collections.abc import Callable, Iterator, Set
from typing import Any

import httpx

Json = dict[str, Any]
LONG_MS = 30_000
"""The longest wait that a fetch may ask for."""
HANG_S = 60
"""A longer wait is a hang."""
LOADING = "COORDINATOR_LOAD_IN_PROGRESS"
CLOCKS_APART_MS = 200
"""A gateway reads the wall clock at its start alone."""
PROBLEM_FIELDS = {
    "type",
    "title",
    "status",
    "detail",
    "code",
    "kafka_code",
    "retriable",
    "definite",
    "request_id",
}


class Gateway:
    """Calls of one gateway. Methods that answer JSON check for success; the `try_` ones answer the raw response.

    By default fetches do not wait, and are those of member `m1`.
    """

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    @property
    def port(self) -> int:
        port = self.http.base_url.port
        assert port is not None
        return port

    # Topics and produce

    def create_topic(self, name: str, partitions: int = 1, **config: Any) -> Json:
        body = {"name": name, "partitions": partitions, "config": dotted(config)}
        return good(self.http.post("/v1/topics", json=body), 201)

    def describe_topic(self, name: str) -> Json:
        return good(self.http.get(f"/v1/topics/{name}"))

    def log_ends(self, name: str) -> list[int]:
        """The log end offset of each partition."""
        return [partition["log_end_offset"] for partition in self.describe_topic(name)["partitions"]]

    def produce(self, topic: str, *values: Any, **fields: Any) -> list[int]:
        """Append values as one batch; `fields` go into every record. Returns: their offsets."""
        records = [{"value": value, **fields} for value in values]
        answer = good(self.http.post(f"/v1/topics/{topic}/records", json={"records": records}))
        return [record["offset"] for record in answer["records"]]

    def produce_batches(self, topic: str, *sizes: int, partition: int = 0) -> None:
        """Append batches of so many records; each value is a number, from 0 on in each batch."""
        for size in sizes:
            self.produce(topic, *range(size), partition=partition)

    def read(self, topic: str, partition: int = 0, **query: Any) -> Json:
        return good(self.http.get(f"/v1/topics/{topic}/partitions/{partition}/records", params=query))

    def letters(self, topic: str, count: int, partition: int = 0) -> list[Json]:
        """The dead letters in a partition of a dead-letter topic, once there are `count` of them; no more may come.

        A gateway makes the topic, and writes the letters, after it has answered the acknowledgement.
        """

        found: list[Json] = []

        def there() -> bool:
            response = self.http.get(f"/v1/topics/{topic}")
            if response.status_code == 404 or good(response)["partitions"][partition]["log_end_offset"] < count:
                return False
            found[:] = self.read(topic, partition, max_records=10_000)["records"]
            return len(found) >= count  # on Kafka, the end of each transaction has an offset too

        wait_until(there, 60)
        assert len(found) == count
        return found

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> None:
        body = {"partitions": [{"partition": partition, "before_offset": before_offset}]}
        good(self.http.post(f"/v1/topics/{topic}/delete-records", json=body))

    # Fetch and acknowledge

    def try_fetch(self, group: str, topic: str | None = None, *, member: str = "m1", **fields: Any) -> httpx.Response:
        body = {"member_id": member, "max_wait_ms": 0, **({"topics": [topic]} if topic else {}), **fields}
        return self.http.post(f"/v1/share-groups/{group}/fetch", json=body)

    def fetch(self, group: str, topic: str | None = None, *, member: str = "m1", **fields: Any) -> Json:
        """Fetch, once the share-partitions are loaded."""
        return good(when_loaded(lambda: self.try_fetch(group, topic, member=member, **fields)))

    def acquire(self, group: str, topic: str | None = None, *, member: str = "m1", **fields: Any) -> list[str]:
        """Fetch. Returns: the acquired ranges, in short: see `ranges`."""
        return ranges(self.fetch(group, topic, member=member, **fields))

    def try_acknowledge(
        self, group: str, acknowledgements: list[Json], *, member: str = "m1", **fields: Any
    ) -> httpx.Response:
        body = {"member_id": member, "acknowledgements": acknowledgements, **fields}
        return self.http.post(f"/v1/share-groups/{group}/acknowledge", json=body)

    def settle(
        self, group: str, topic: str, first: int, last: int, type: str, *, member: str = "m1", **fields: Any
    ) -> str | int:
        """Acknowledge one range. Returns: `applied`, `ignored`, or the error's number."""
        acknowledgement = acknowledge_range(topic, first, last, type, **fields)
        return outcomes(self.try_acknowledge(group, [acknowledgement], member=member))[0]

    # Groups

    def configure(self, group: str, **settings: Any) -> Json:
        return good(self.http.patch(f"/v1/share-groups/{group}/config", json={"config": dotted(settings)}))

    def offsets(self, group: str) -> Json:
        """Start offset and lag by (topic, partition)."""
        listed = good(self.http.get(f"/v1/share-groups/{group}/offsets", params={"page_size": 10_000}))["topics"]
        return {
            (topic["topic"], partition["partition"]): (partition["start_offset"], partition["lag"])
            for topic in listed
            for partition in topic["partitions"]
        }

    def try_reset(self, group: str, to: str, *topics: str, **fields: Any) -> httpx.Response:
        body = {"to": to, **({"topics": [{"topic": topic} for topic in topics]} if topics else {}), **fields}
        return self.http.post(f"/v1/share-groups/{group}/offsets/reset", json=body)

    def reset(self, group: str, to: str, *topics: str, **fields: Any) -> Json:
        """Reset offsets. Returns: the new ones by (topic, partition)."""
        answer = good(self.try_reset(group, to, *topics, **fields))
        assert answer["failed_count"] == len(answer["errors"]) == 0
        return {
            (topic["topic"], partition["partition"]): partition["start_offset"]
            for topic in answer["topics"]
            for partition in topic["partitions"]
        }

    def try_delete_group(self, group: str, **query: Any) -> httpx.Response:
        return self.http.delete(f"/v1/share-groups/{group}", params=query)

    def try_delete_offsets(self, group: str, topic: str, **query: Any) -> httpx.Response:
        return self.http.delete(f"/v1/share-groups/{group}/offsets/{topic}", params=query)

    def in_flight(self, group: str, **query: Any) -> list[Json]:
        return good(self.http.get(f"/v1/share-groups/{group}/in-flight", params=query))["partitions"]

    def window(self, group: str, topic: str, partition: int = 0) -> tuple[int, list[str]]:
        """One share-partition: its start offset, and its batches in short, `0-4 ACQUIRED×1`; neighbours joined."""
        (found,) = self.in_flight(group, topic=topic, partition=partition)
        joined: list[list[Any]] = []
        for batch in found["batches"]:
            what = f"{batch['delivery_state']}×{batch['delivery_count']}"
            if joined and joined[-1][2] == what and joined[-1][1] + 1 == batch["first_offset"]:
                joined[-1][1] = batch["last_offset"]
            else:
                joined.append([batch["first_offset"], batch["last_offset"], what])
        return found["start_offset"], [f"{first}-{last} {what}" for first, last, what in joined]

    def metrics(self) -> dict[str, float]:
        """Every sample by its name with labels, as Prometheus writes it."""
        lines = self.http.get("/metrics").text.splitlines()
        return {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        }


@contextlib.contextmanager
def woken(*gateways: Gateway) -> Iterator[None]:
    """Check that fetches are answered at once or because of an event: none waits until its time is over."""

    def expired() -> list[float]:
        return [gateway.metrics()["sharequeue_delayed_share_fetch_expires_total"] for gateway in gateways]

    before = expired()
    yield
    assert expired() == before, "a fetch waited until its time was over"


def when_loaded(fetch: Callable[[], httpx.Response], passing: Set[str] = frozenset({LOADING})) -> httpx.Response:
    """Fetch again while a share-partition is being loaded, as clients do: a busy machine may take more than the 5 s
    that a gateway waits for it. Such a refusal is definite: nothing was acquired or settled. `passing`: codes."""
    deadline = time.monotonic() + HANG_S
    while True:
        response = fetch()
        if not is_loading(response, passing) or time.monotonic() > deadline:
            return response
        time.sleep(0.05)


def is_loading(response: httpx.Response, passing: Set[str] = frozenset({LOADING})) -> bool:
    """Whether a fetch got nothing because all that it found is being loaded, or has another of these errors."""
    if response.status_code == 503:
        return bool(response.json()["code"] == LOADING)
    failed = (
        response.status_code == 200 and b'"errors":[]' not in response.content
    )  # some answers are too deep to decode
    answer = response.json() if failed else {}
    codes = {error["code"] for error in answer.get("errors", ())}
    return bool(codes) and codes <= passing and not answer["batches"] and not answer.get("acknowledgement_results")


def good(response: httpx.Response, status: int = 200) -> Any:
    """The answer's JSON, if the call succeeded."""
    assert response.status_code == status, response.text
    return response.json()


def dotted(settings: Json) -> Json:
    """Settings named as keyword arguments, as texts: `retention_ms=5` is `"retention.ms":"5"`."""
    return {
        name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }


def acknowledge_range(topic: str, first: int, last: int, type: str, **fields: Any) -> Json:
    """An acknowledgement of a range; several types, divided by spaces, are one per offset."""
    types = {"types": type.split()} if " " in type else {"type": type}
    return {"topic": topic, "partition": 0, "first_offset": first, "last_offset": last, **types, **fields}


def ranges(answer: Json) -> list[str]:
    """The ranges of a fetch, in short: `0-9×1`, with the partition in front unless it is 0: `2:0-9×1`."""
    return [
        (f"{batch['partition']}:" if batch["partition"] else "")
        + f"{batch['first_offset']}-{batch['last_offset']}×{batch['delivery_count']}"
        for batch in answer["batches"]
    ]


def offsets(answer: Json) -> list[int]:
    """Offsets of all records of a fetch."""
    return [record["offset"] for batch in answer["batches"] for record in batch["records"]]


def outcomes(response: httpx.Response) -> list[str | int]:
    """The results of an acknowledge call: a status, or the number of the error."""
    results = response.json()["results"]
    return [result["status"] if "code" not in result else result["kafka_code"] for result in results]


def problem(response: httpx.Response, status: int, code: str, kafka_code: int) -> Json:
    """The problem document of a refused call, if it is the one expected."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert set(document) >= PROBLEM_FIELDS
    assert (document["status"], document["code"], document["kafka_code"]) == (status, code, kafka_code), document
    assert document["title"]
    assert document["detail"]
    assert document["type"].startswith("urn:sharequeue:problem:")
    assert isinstance(document["retriable"], bool)
    assert isinstance(document["definite"], bool)
    assert document["request_id"] == response.headers["x-request-id"]
    return document


def wait_until(condition: Callable[[], Any], seconds: float = HANG_S) -> Any:
    """Wait until `condition` is true. Returns: its answer. Fails when the time is over, which no busy machine needs."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "the condition was not true in time"
        time.sleep(0.02)
    return found
