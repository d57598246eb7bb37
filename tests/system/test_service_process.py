"""One service of a stack as a process, and its port."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from sharequeue.service.service import listen
from sharequeue.stack.process import Process, free_port
from sharequeue.stack.redis import Redis
from sharequeue.stack.stack import Migration, ServiceProcess
from sharequeue.stack.system_user import EmbeddedError
from tests.http.calls import wait_until

WAITING = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
while True:
    signal.pause()
"""

ENDING = """
from functools import partial
from sharequeue_http.application.app import App
from sharequeue.service.operations import Operations
from sharequeue.service.service import Program, Service, run
from sharequeue.service.settings import ServiceSettings

class Sweeper:
    async def sweep(self, *told):
        pass

async def prepare(settings):
    return Service(App("ending", ""), "", (LOOP,), Operations(None))

settings = ServiceSettings(cluster_token="x" * 16, port=0)
raise SystemExit(run((Program("ending", ServiceSettings, "ENDING_", prepare), settings)))
"""


OPEN_FILES = ENDING.replace(
    "        pass", "        import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
)


def test_the_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    """Shells and units often give 1,024 open files, so as many silent connections would lock all clients out."""
    program = 'ulimit -Sn 256; ulimit -Hn 2000; exec "$@"'
    command = ["sh", "-c", program, "sh", sys.executable, "-c", OPEN_FILES.replace("LOOP", "Sweeper().sweep")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.stdout == "2000 2000\n", ended.stderr


def test_a_start_that_times_out_names_the_timeout() -> None:
    """As when the database does not answer: such an error has no text of its own."""
    program = ENDING.replace("return Service", "raise TimeoutError; return Service")
    program = f"from sharequeue_http.log import configure\nconfigure({{'ending': 'info'}})\n{program}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 1
    (line,) = [json.loads(line) for line in (ended.stdout + ended.stderr).splitlines()]
    assert (line["message"], line["cause"]) == ("cannot start", "TimeoutError")


def test_a_port_of_operations_that_is_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
        program = ENDING.replace("port=0", f"port=0, operations_port={address[1]}").replace("LOOP", "Sweeper().sweep")
        program = f"from sharequeue_http.log import configure\nconfigure({{'ending': 'info'}})\n{program}"
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
        )
    assert ended.returncode == 1
    (line,) = [json.loads(line) for line in (ended.stdout + ended.stderr).splitlines()]
    assert line["message"] == "cannot start"
    assert "Address already in use" in line["cause"]
    assert str(address) in line["cause"]


@pytest.mark.parametrize("loop", ["Sweeper().sweep", "partial(Sweeper().sweep, Sweeper())"])
def test_a_loop_that_ends_is_named_and_ends_the_service(loop: str) -> None:
    program = [sys.executable, "-c", ENDING.replace("LOOP", loop)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 1
    assert "RuntimeError: Sweeper.sweep ended; it must run as long as the service" in ended.stderr


def test_a_paused_service_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServiceProcess, "popen", subprocess.Popen)
    (tmp_path / "waiting.py").write_text(WAITING)
    service = ServiceProcess(
        "waiting", "waiting", {"waiting": "http://127.0.0.1:0"}, {"PYTHONPATH": str(tmp_path)}, tmp_path / "log"
    )
    service.start()
    wait_until((tmp_path / "log").read_text)
    assert service.process is not None
    service.process.send_signal(signal.SIGSTOP)
    service.stop()
    assert service.process.returncode == 0, "it was not killed after a while"


def test_a_chosen_port_is_reserved_until_its_server_listens() -> None:
    """Nor while the server is restarted: another process with its port would keep it from coming back."""

    class Server:
        pass

    server = Server()
    port = free_port(server)
    with socket.socket() as another, pytest.raises(OSError, match="in use"):
        another.bind(("127.0.0.1", port))
    for _ in range(2):
        with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
            pass


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_a_service_listens_on_addresses_of_both_versions(host: str) -> None:
    with listen(host, 0) as listener, socket.create_connection((host, listener.getsockname()[1]), timeout=10):
        pass


def test_a_damaged_folder_of_redis_is_named_with_what_to_do(tmp_path: Path) -> None:
    server = Redis(tmp_path)
    server.start()
    with redis.Redis.from_url(server.url) as client:
        client.set("key", "value")
    server.stop()
    for file in tmp_path.glob("redis/appendonlydir/*.incr.aof"):
        file.write_bytes(b"damaged" + file.read_bytes())
    with pytest.raises(EmbeddedError, match=f"move {tmp_path / 'redis'} away and start again"):
        Redis(tmp_path).start()


def test_a_store_that_a_full_disk_ended_says_what_to_do(tmp_path: Path) -> None:
    """PostgreSQL's last words when the file system of its write-ahead log is full, also at the next start."""
    words = 'FATAL:  could not write to file "pg_wal/xlogtemp.353": No space left on device'
    store = Process("PostgreSQL", tmp_path / "postgresql.log", ())
    store._spawn(["sh", "-c", f"echo '{words}'; echo 'LOG:  database system is shut down'; exit 1"], signal.SIGINT)
    with pytest.raises(EmbeddedError, match=r"did not start(.|\n)*is shut down\nIts disk is full. Free some space"):
        store._wait_until(lambda: False)


def test_a_migration_that_is_killed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel without memory does so, and nothing is in the log."""

    def popen(_: Sequence[str], **options: Any) -> Any:
        return subprocess.Popen(["sh", "-c", "kill -9 $$"], **options)

    monkeypatch.setattr(Migration, "popen", staticmethod(popen))
    with pytest.raises(EmbeddedError, match=r"the migration died \(exit code -9\)"):
        Migration("the migration", tmp_path / "migrate.log", ()).finish("postgresql://")
