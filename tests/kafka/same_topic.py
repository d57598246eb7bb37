"""sharequeue with Kafka as record log: the topics are those of the native side, and so are most records."""

import base64
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from sharequeue.stack.stack import temporary_stack
from tests.http.calls import good, wait_until
from tests.kafka.kafka import Kafka, Player
from tests.kafka.sharequeue import SETTINGS, Sharequeue
from tests.kafka.sides import Sides
from tests.kafka_log.brokers import Brokers

SETTINGS_ON_KAFKA: Final = {**SETTINGS, "SHAREQUEUE_COORDINATOR_GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS": "1000"}


class SameTopic(Sharequeue):
    """The gateway of a stack with SETTINGS_ON_KAFKA. It reads what the native side has made and written."""

    name = "sharequeue on Kafka"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._read_to: dict[int, int] = {}

    def begin_script(self, name: str, partitions: int) -> None:
        self._script = name
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

    @staticmethod
    def _value(record: Mapping[str, Any]) -> str:
        if "value_base64" in record:
            return base64.b64decode(record["value_base64"]).decode()
        return str(record["value"])


class Crashes:
    """Where players wait for one another before a crash: the last one that comes has `restart` done, once for all."""

    def __init__(self, players: int, restart: Callable[[], None]) -> None:
        self._restart = restart
        self._changed = threading.Condition()
        self._players = players
        self._waiting = self._done = 0

    def crash(self) -> None:
        with self._changed:
            self._waiting += 1
            if not self._crash_if_all_wait():
                before = self._done
                self._changed.wait_for(lambda: self._done > before)

    def leave(self) -> None:
        """Play no more: the others do not wait."""
        with self._changed:
            self._players -= 1
            self._crash_if_all_wait()

    def _crash_if_all_wait(self) -> bool:
        if not 0 < self._waiting == self._players:
            return False
        try:
            self._restart()
        finally:
            self._waiting = 0
            self._done += 1
            self._changed.notify_all()
        return True


class NativeAndHttp(Player):
    """Kafka's side, whose producer without transactions is a caller over HTTP half of the time."""

    def __init__(self, port: int, over_http: SameTopic, crashes: Crashes) -> None:
        super().__init__(port)
        self._over_http = over_http
        self._crashes = crashes

    def close(self) -> None:
        self._crashes.leave()
        super().close()

    def produce(self, producer: str | None, partition: int, values: Sequence[str]) -> int:
        by_number = values[0].replace(".", "").isdigit() and crc32(values[0].encode()) % 2
        if producer is None and by_number:
            return self._over_http.write(partition, values)
        return super().produce(producer, partition, values)

    def restart(self) -> None:
        self._crashes.crash()
        super().restart()


@contextmanager
def same_topics(brokers: Brokers, folder: Path, players: int = 1, **stores: str) -> Iterator[list[Sides]]:
    """The sides of each player, all on one broker. `stores`: of the stack, if not its own."""
    with (
        temporary_stack(folder / "stack", kafka=brokers.address, settings=SETTINGS_ON_KAFKA, **stores) as stack,
        closing(Kafka(folder / "native", brokers)) as kafka,
    ):
        gateway = stack.service("gateway")

        def restart() -> None:
            brokers.kill(1)
            brokers.start(1)
            gateway.kill()
            gateway.start()
            wait_until(gateway.ready)

        crashes = Crashes(players, restart)
        each_ours = [SameTopic(stack.url) for _ in range(players)]
        yield [Sides(NativeAndHttp(kafka.port, ours, crashes), ours) for ours in each_ours]
