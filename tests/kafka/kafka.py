"""Kafka's side: a Java process with the broker and the clients of each player, which take a step a line."""

import json
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from tests.kafka.scripts import LOCK_MS, MEMBERS, Level
from tests.kafka.sides import Batch, Ends, GroupOffsets, Settled
from tests.kafka_log.brokers import Brokers

HERE: Final = Path(__file__).parent
MADE: Final = HERE.parents[1] / "dist/kafka"
TYPES: Final = {"gap": 0, "accept": 1, "release": 2, "reject": 3}
STOP_S: Final = 10


class KafkaError(Exception):
    """The broker cannot be made or started, or refused a step."""


def make() -> None:
    """Compile Broker.java with the jars that pom.xml names. Raises: KafkaError."""
    command = (
        "mvn",
        "--quiet",
        "--batch-mode",
        "compile",
        "dependency:copy-dependencies",
        f"-DoutputDirectory={MADE}/lib",
    )
    shutil.rmtree(MADE, ignore_errors=True)  # jars and classes of another version would stay
    done = subprocess.run(command, cwd=HERE, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise KafkaError(f"Maven cannot make the broker:\n{done.stdout[-4000:]}")


class Player:
    """Clients of a broker, in the program that listens at `port`. Close it. Raises: KafkaError."""

    name = "Kafka"

    def __init__(self, port: int) -> None:
        self.port = port
        with socket.create_connection(("127.0.0.1", port)) as connection:
            self._lines = connection.makefile("rw")
        self.version: str = self._answer()["version"]
        self._script = ""
        self._partitions = 0

    def close(self) -> None:
        """End what the clients do."""
        self._lines.close()

    def _answer(self) -> Any:
        line = self._lines.readline()
        if not line:
            raise KafkaError("the program has ended the connection")
        answer = json.loads(line)
        if "error" in answer:
            raise KafkaError(answer["error"])
        return answer

    def _do(self, step: str, **what: Any) -> Any:
        self._lines.write(json.dumps({"do": step, **what}) + "\n")
        self._lines.flush()
        return self._answer()

    def create_topic(self, name: str, partitions: int) -> None:
        self._do("topic", topic=name, partitions=partitions)

    def configure(self, group: str, config: Mapping[str, str]) -> None:
        """Set what a group has of settings."""
        self._do("configure", group=group, config=config)

    def begin_script(self, name: str, partitions: int) -> None:
        self._do("forget")
        self._script, self._partitions = name, partitions
        self.create_topic(self._script, partitions)

    def start(self, group: str, reset: str) -> None:
        self.configure(self._group(group), {"share.auto.offset.reset": reset})
        self.set_lock(group, LOCK_MS)
        for member in range(MEMBERS):
            self._do("join", group=self._group(group), member=f"{group}-{member}", topic=self._script)

    def grow(self, partitions: int) -> None:
        self._partitions = partitions
        self._do("grow", topic=self._script, partitions=partitions)

    def remake(self, partitions: int) -> None:
        self._partitions = partitions
        self._do("remake", topic=self._script, partitions=partitions)

    def settle_late(self, group: str, member: int, settled: Sequence[Settled]) -> set[int]:
        answer = self._settle("settle_late", group, member, settled)
        return set(answer["codes"])

    def _group(self, group: str) -> str:
        return f"{self._script}-{group}"

    def begin(self, producer: str) -> None:
        self._do("begin", producer=producer)

    def produce(self, producer: str | None, partition: int, values: Sequence[str]) -> int:
        answer = self._do("produce", producer=producer, topic=self._script, partition=partition, values=list(values))
        return int(answer["offset"])

    def end(self, producer: str, commit: bool) -> None:
        self._do("end", producer=producer, commit=commit)

    def replace(self, producer: str) -> None:
        self._do("replace", producer=producer)

    def set_level(self, group: str, level: Level) -> None:
        self.configure(self._group(group), {"share.isolation.level": level})

    def set_lock(self, group: str, lock_ms: int) -> None:
        self.configure(self._group(group), {"share.record.lock.duration.ms": str(lock_ms)})

    def restart(self) -> None:
        """Go on with a broker that was started again."""
        self._do("reconnect")

    def delete(self, partition: int, before_offset: int) -> None:
        self._do("delete_records", topic=self._script, partition=partition, before=before_offset)

    def fetch(self, group: str, member: int, max_records: int, record_limit: bool, wait_ms: int) -> Sequence[Batch]:
        answer = self._do(
            "fetch",
            member=f"{group}-{member}",
            topic=self._script,
            partitions=self._partitions,
            max_records=max_records,
            record_limit=record_limit,
            wait_ms=wait_ms,
        )
        return [
            Batch(batch["partition"], batch["first"], batch["last"], batch["count"], dict(batch["records"]))
            for batch in answer["batches"]
        ]

    def acknowledge(self, group: str, member: int, settled: Sequence[Settled]) -> None:
        self._settle("acknowledge", group, member, settled)

    def _settle(self, step: str, group: str, member: int, settled: Sequence[Settled]) -> Any:
        batches = [
            {
                "partition": each.partition,
                "first": each.first_offset,
                "last": each.first_offset + len(each.types) - 1,
                "types": [TYPES[name] for name in each.types],
            }
            for each in settled
        ]
        return self._do(step, member=f"{group}-{member}", topic=self._script, batches=batches)

    def leave(self, group: str, member: int) -> None:
        self._do("leave", member=f"{group}-{member}")

    def ends(self) -> Ends:
        return Ends(**self._do("ends", topic=self._script, partitions=self._partitions))

    def offsets(self, group: str) -> list[GroupOffsets]:
        answer = self._do("offsets", group=self._group(group), topic=self._script, partitions=self._partitions)
        return [GroupOffsets(**partition) for partition in answer["partitions"]]


class Kafka(Player):
    """The program, with a broker of its own in the folder `home` or beside `brokers`, and a first player. Close it."""

    def __init__(self, home: Path, brokers: Brokers | None = None) -> None:
        home.mkdir()
        program: tuple[str, ...] = (f"{MADE}/classes:{MADE}/lib/*", "Broker", str(home))
        if brokers is not None:
            program = f"{brokers.jars}/*", str(HERE / "Broker.java"), brokers.address.rpartition(":")[2]
        log = home / "broker.log"
        self._errors: IO[bytes] = log.open("wb")
        self._process = subprocess.Popen(
            (
                "java",
                "-Xmx768m",
                "-XX:+UseSerialGC",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                *("-cp", *program),
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        try:
            super().__init__(int(self._process.stdout.readline()))
        except (ValueError, KafkaError) as fault:
            said = "\n".join(log.read_text(errors="replace").splitlines()[-40:])
            raise KafkaError(f"the broker cannot be used: {said}") from fault
        self.address = self._own_address(home) if brokers is None else brokers.address
        """Host and port, for other clients."""

    @staticmethod
    def _own_address(home: Path) -> str:
        settings = (home / "server.properties").read_text().replace("\\", "").splitlines()
        listeners = next(line for line in settings if line.startswith("advertised.listeners="))
        return listeners.rpartition("/")[2]

    def close(self) -> None:
        """End the broker."""
        super().close()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()
