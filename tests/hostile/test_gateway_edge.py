"""The edge of a real gateway: its files, curl, and the methods that each path allows."""

import contextlib
import json
import subprocess
from pathlib import Path

import httpx
import psutil
import pytest

from sharequeue.protocol import apis
from sharequeue.stack.stack import Stack
from sharequeue_http.forms.api import Api
from tests.http.calls import Gateway, problem, wait_until
from tests.sharequeue_http.raw import Raw, head


def test_a_gateway_that_runs_out_of_files_logs_it_and_keeps_running(
    gateway: Gateway, shared_stack: Stack, shared_data_dir: Path
) -> None:
    """Its limit is lowered while it runs: the limit that it computed at its start is too high."""
    process = psutil.Process(shared_stack.service("gateway").pid)
    soft, hard = process.rlimit(psutil.RLIMIT_NOFILE)
    assert soft == hard
    log = shared_data_dir / "logs" / "gateway.log"
    process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds() + 5, hard))
    try:
        lines = [Raw(gateway.port) for _ in range(20)]
        wait_until(lambda: "no file can be opened" in log.read_text())
    finally:
        process.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))
    for line in lines:
        line.__exit__()
    wait_until(lambda: httpx.get(f"{shared_stack.url}/livez", timeout=60).status_code == 200)


def test_a_body_is_freed_before_its_connection(gateway: Gateway, shared_stack: Stack) -> None:
    """Otherwise an idle connection would keep as much memory as its largest body took."""
    process = psutil.Process(shared_stack.service("gateway").pid)
    before, size = process.memory_info().rss, 10 << 20
    with contextlib.ExitStack() as lines:
        for _ in range(16):
            line = lines.enter_context(Raw(gateway.port, 60))
            line.send(head("GET /livez", f"Content-Length: {size}") + b"0" * size)
            assert line.answer().status == 200
        assert process.memory_info().rss - before < 8 * size


def test_curl_may_offer_http_2(gateway: Gateway, shared_stack: Stack, name: str) -> None:
    url = f"{shared_stack.url}/v1/topics/{name}/records"
    arguments = ["curl", "--silent", "--http2", url, "-H", "Content-Type: application/json", "-d"]
    for offset in range(2):
        answer = subprocess.run([*arguments, '{"records":[{"value":"x"}]}'], capture_output=True, check=True).stdout
        assert json.loads(answer) == {"records": [{"partition": 0, "offset": offset}]}
    assert [record["value"] for record in gateway.read(name)["records"]] == ["x", "x"]


PUBLIC = [value for value in vars(apis).values() if isinstance(value, Api)]
PATHS = sorted({api.path.replace("{partition}", "0") for api in PUBLIC if not api.internal})


@pytest.mark.parametrize("path", PATHS)
def test_a_method_is_allowed_if_and_only_if_it_is_answered(gateway: Gateway, path: str) -> None:
    path = path.replace("{", "no-").replace("}", "")
    refused = gateway.http.request("TRACE", path)
    assert refused.status_code == 405
    allowed = set(refused.headers["allow"].split(", "))
    for method in ("GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"):
        answered = gateway.http.request(
            method, path, json={"no": "such field"} if method in ("POST", "PATCH") else None
        )
        if (path.rpartition("/")[2], method) != ("reset", "DELETE"):  # a topic may have the name of this call
            assert (answered.status_code != 405) == (method in allowed), method


def test_an_unknown_path_has_its_own_code(gateway: Gateway) -> None:
    for method in ("GET", "POST", "DELETE"):
        problem(gateway.http.request(method, "/v1/topic"), 404, "UNKNOWN_PATH", 42)
