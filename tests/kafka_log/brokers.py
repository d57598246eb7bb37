"""Real brokers of Kafka (KRaft), as processes: one, or a cluster of three. Needs Java 17 and Maven.

SHAREQUEUE_TEST_KAFKA_VERSION=3.9.1 runs the tests on an older broker.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final

from sharequeue.stack.process import free_port

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
NEWEST: Final = "4.4.0"
VERSION: Final = os.environ.get("SHAREQUEUE_TEST_KAFKA_VERSION", NEWEST)
CLUSTER_ID: Final = "c2hhcmVxdWV1ZS10ZXN0cw"  # 16 bytes in base64
STARTED: Final = "Kafka Server started"
DEADLINE_S: Final = 1200.0  # for a hang: a broker that ends is noticed at once
CAN_CUT: Final = os.geteuid() == 0 and shutil.which("iptables") is not None
"""Whether this user may cut a broker off."""


def jars(version: str = VERSION) -> Path:
    """Fetch the jars of a broker, once. Raises: RuntimeError."""
    folder, pom = ROOT / "dist/kafka-log" / version, (ROOT / "tests/kafka/pom.xml").read_bytes()
    fetched = folder / "fetched"
    if not fetched.exists() or fetched.read_bytes() != pom:
        command = ("mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies", f"-Dkafka.version={version}")
        done = subprocess.run(
            (*command, f"-DoutputDirectory={folder}"),
            cwd=ROOT / "tests/kafka",
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode:
            raise RuntimeError(f"Maven cannot fetch the broker:\n{done.stdout[-4000:]}")
        fetched.write_bytes(pom)
    return folder


class Brokers:
    """A cluster in the folder `home`: brokers 1 ... `count`, each of them a controller too. Close it.

    settings: further ones of each broker. protocol: of its listener. scram: a user, as Kafka's tool takes it.
    """

    def __init__(
        self,
        home: Path,
        count: int = 1,
        version: str = VERSION,
        settings: Mapping[str, str] = MappingProxyType({}),
        protocol: str = "PLAINTEXT",
        scram: str = "",
    ) -> None:
        self._protocol, self._scram = protocol, scram
        self._home, self.jars, self._count = home, jars(version), count
        ports = [free_port(self) for _ in range(2 * count)]  # held: a connection that took one would keep a broker away
        self._ports, self._controllers = ports[:count], ports[count:]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._logs: dict[int, IO[bytes]] = {}
        self._settings = settings
        home.mkdir(parents=True, exist_ok=True)
        for node in range(1, count + 1):
            self._configure(node)
            self.start(node, wait=False)
        for node in range(1, count + 1):
            self._wait(node)

    @property
    def nodes(self) -> Sequence[int]:
        return range(1, self._count + 1)

    @property
    def address(self) -> str:
        """Hosts and ports, as a client names them."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def _configure(self, node: int) -> None:
        port, controller = self._ports[node - 1], self._controllers[node - 1]
        replicas, in_sync = str(min(3, self._count)), str(min(2, self._count))
        settings: dict[str, Any] = {
            "process.roles": "broker,controller",
            "node.id": node,
            "controller.quorum.voters": ",".join(
                f"{index}@127.0.0.1:{each}" for index, each in enumerate(self._controllers, 1)
            ),
            "listeners": f"{self._protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"{self._protocol}://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": f"{self._protocol}:{self._protocol},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": self._protocol,
            "log.dirs": self._home / f"log-{node}",
            "auto.create.topics.enable": "false",
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.num.partitions": 3,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "log.retention.ms": -1,  # records of tests have times of long ago
            "log.retention.check.interval.ms": 1000,
            "log.cleaner.backoff.ms": 500,
            "log.initial.task.delay.ms": 500,
            "log.segment.delete.delay.ms": 1000,
            "log.flush.start.offset.checkpoint.interval.ms": 100,  # a crash brings back what was deleted since then
            "group.initial.rebalance.delay.ms": 0,
            "broker.session.timeout.ms": 6000,
            # with Kafka's times the controllers of a busy machine elect one another without an end
            "controller.quorum.fetch.timeout.ms": 6000,
            "controller.quorum.election.timeout.ms": 3000,
            "controller.quorum.request.timeout.ms": 6000,
            "share.coordinator.state.topic.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            "group.share.session.timeout.ms": 600000,
            "group.share.max.session.timeout.ms": 600000,
            "group.share.assignment.interval.ms": 0,
            "group.share.min.record.lock.duration.ms": 1000,
            "group.share.max.record.lock.duration.ms": 600000,
            **self._settings,
        }
        (self._home / f"{node}.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def start(self, node: int, wait: bool = True) -> None:
        """Start a broker, also again after `kill`."""
        if node in self._logs:
            said = self._home / f"{node}.log"
            said.rename(said.with_suffix(f".{time.monotonic_ns()}.log"))  # what it said before it was killed
            self._logs[node].close()
        log = self._logs[node] = (self._home / f"{node}.log").open("wb")
        command = (
            "java",
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
            "-Dorg.slf4j.simpleLogger.log.kafka.coordinator.transaction.TransactionMarkerChannelManager=info",
            *("-cp", f"{self.jars}/*", str(HERE / "Node.java")),
            *(str(self._home / f"{node}.properties"), CLUSTER_ID),
            *(("--add-scram", self._scram) if self._scram else ()),
        )
        group = self._ports[node - 1] if CAN_CUT else None  # a number that no other process has
        self._processes[node] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, group=group)
        if wait:
            self._wait(node)

    def _wait(self, node: int) -> None:
        said, ends = self._home / f"{node}.log", time.monotonic() + DEADLINE_S
        while STARTED not in said.read_text(errors="replace"):
            if self._processes[node].poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"broker {node} did not start:\n{said.read_text(errors='replace')[-4000:]}")
            time.sleep(0.1)

    def skipped_ends(self) -> list[str]:
        """What brokers said of committed transactions whose ends they left out: Kafka 4.4 may then lose the records."""
        said = (line for log in self._home.glob("*.log") for line in log.read_text(errors="replace").splitlines())
        return [line for line in said if "Couldn't find leader endpoint" in line]

    def kill(self, node: int) -> None:
        """End a broker as SIGKILL does; what it had on its disk stays."""
        self._processes[node].kill()
        self._processes[node].wait()

    def pause(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._processes[node].pid, os.WSTOPPED)  # all its threads stand still

    def resume(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGCONT)

    def cut_off(self, node: int) -> None:
        """Drop every packet that a broker sends, so that it has no connection to brokers and clients."""
        self._rule("--insert", node)

    def join(self, node: int) -> None:
        """Bring a broker that was cut off back."""
        self._rule("--delete", node)

    def _rule(self, change: str, node: int) -> None:
        which = ("OUTPUT", "--match", "owner", "--gid-owner", str(self._ports[node - 1]), "--jump", "DROP")
        subprocess.run(("iptables", "--wait", change, *which), check=True)

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
        for log in self._logs.values():
            log.close()
