"""sharequeue with Kafka as record log: the topics are those of the native side, and so are most records."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import good, wait_until
from tests.kafka.kafka import Kafka
from tests.kafka.sharequeue import SETTINGS, Sharequeue
from tests.kafka_log.brokers import Brokers

CRASHES: Final = 0.06
"""How many of the steps are crashes."""
SETTINGS_ON_KAFKA: Final = {**SETTINGS, "SHAREQUEUE_COORDINATOR_GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS": "1000"}


class SameTopic(Sharequeue):
    """The gateway of a stack with SETTINGS_ON_KAFKA. It reads what the native side has made and written."""

    name = "sharequeue on Kafka"

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack.url)
        self._service = stack.service("gateway")
        self._read_to: dict[int, int] = {}

    def begin_script(self, number: int, partitions: int) -> None:
        self._script = f"script-{number}"
        self._sessions.clear()
        self._topic_id = ""
        self.remake(partitions)

    def remake(self, partitions: int) -> None:
        self._earlier_id = self._topic_id
        self._read_to.clear()
        wait_until(self._is_another)
        self._topic_id = self._gateway.describe_topic(self._script)["topic_id"]

    def _is_another(self) -> bool:
        response = self._http.get(f"/v1/topics/{self._script}")
        return response.status_code == 200 and response.json()["topic_id"] != self._earlier_id

    def grow(self, partitions: int) -> None:
        wait_until(lambda: len(self._gateway.describe_topic(self._script)["partitions"]) == partitions)

    def begin(self, producer: str) -> None:
        """The native side begins it; so for `end` and `replace`."""

    def end(self, producer: str, commit: bool) -> None: ...
    def replace(self, producer: str) -> None: ...

    def write(self, partition: int, values: Sequence[str]) -> int:
        """Produce numbers over HTTP, with a key or without. Returns: the offset of the first."""
        records = [{"value": float(value), "partition": partition} for value in values]
        headers = {"Idempotency-Key": f"{self._topic_id} {values[0]}"} if crc32(values[0].encode()) % 4 < 2 else {}
        answer = good(self._http.post(f"/v1/topics/{self._script}/records", json={"records": records}, headers=headers))
        return int(answer["records"][0]["offset"])

    def produce(self, producer: str | None, partition: int, values: Sequence[str]) -> int:
        """Find the records that were just written. A gateway hears of them a moment later."""

        def found() -> list[tuple[int, str]]:
            read = self._gateway.read(self._script, partition, offset=self._read_to.get(partition, 0))
            there = [(record["offset"], self._value(record)) for record in read["records"]]
            places = [index for index, (_, value) in enumerate(there) if value == values[0]]
            return there[places[0] :] if places else []

        there = wait_until(found)
        offset: int = there[0][0]
        assert there[: len(values)] == list(enumerate(values, offset)), there
        self._read_to[partition] = offset + len(values)
        return offset

    def delete(self, partition: int, before_offset: int) -> None:
        starts = self._gateway.describe_topic(self._script)["partitions"]
        assert starts[partition]["log_start_offset"] >= before_offset
        self._read_to[partition] = max(self._read_to.get(partition, 0), before_offset)

    def restart(self) -> None:
        self._service.kill()
        self._service.start()
        self._sessions.clear()
        wait_until(self._service.ready)

    @staticmethod
    def _value(record: Mapping[str, Any]) -> str:
        if "value_base64" in record:
            return base64.b64decode(record["value_base64"]).decode()
        return str(record["value"])


class NativeAndHttp(Kafka):
    """Kafka's side, whose producer without transactions is a caller over HTTP half of the time."""

    def __init__(self, *arguments: Any, over_http: SameTopic) -> None:
        super().__init__(*arguments)
        self._over_http = over_http

    def produce(self, producer: str | None, partition: int, values: Sequence[str]) -> int:
        by_number = values[0].replace(".", "").isdigit() and crc32(values[0].encode()) % 2
        if producer is None and by_number:
            return self._over_http.write(partition, values)
        return super().produce(producer, partition, values)


@contextmanager
def same_topics(brokers: Brokers, folder: Path, **stores: str) -> Iterator[tuple[NativeAndHttp, SameTopic]]:
    """Both sides on one broker. `stores`: of the stack, if not its own."""
    with (
        temporary_stack(folder / "stack", kafka=brokers.address, settings=SETTINGS_ON_KAFKA, **stores) as stack,
        closing(SameTopic(stack)) as ours,
        closing(NativeAndHttp(folder / "native", brokers, over_http=ours)) as native,
    ):
        yield native, ours
