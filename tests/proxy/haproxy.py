"""HAProxy's health checks, as a sentence of docs/proxy.md shows them, against a gateway.

HAProxy of itself sends no `Host`, which a gateway refuses: without the shown lines the gateway is down, with them up.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from sharequeue.stack.process import free_port
from sharequeue.stack.stack import Stack
from tests.debian import with_libraries
from tests.http.calls import wait_until
from tests.proxy.rolling import check_rolling_restart
from tests.shown.kinds import of_kind

PACKAGES: Final = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")


@contextmanager
def haproxy(home: Path, urls: Sequence[str], lines: Sequence[str]) -> Iterator[int]:
    """HAProxy before gateways. It asks each of them every second, as docs/production.md says, and repeats nothing.

    Returns: its port.
    """
    program, environment = with_libraries("haproxy", PACKAGES, home)
    port = free_port()
    file = home / "haproxy.cfg"
    file.write_text(
        "\n".join(
            (
                "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n timeout check 10s\n retries 0",
                f"frontend web\n bind 127.0.0.1:{port}\n default_backend gateways",
                "backend gateways",
                *(f" {line}" for line in lines),
                " default-server inter 1s fall 2 rise 1",
                *(f" server gateway{place} {urlsplit(url).netloc} check" for place, url in enumerate(urls)),
                "",
            )
        )
    )
    process = subprocess.Popen([program, "-db", "-f", file], env=environment)
    try:
        yield port
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(60)


def check_health_checks(home: Path, stack: Stack) -> None:
    """Through the backend whose gateways are up, a call passes; without it, HAProxy answers 503."""
    shown = sorted(of_kind("haproxy"), key=lambda line: not line.startswith("option"))
    for lines, status in ((shown, 200), (["option httpchk GET /readyz"], 503)):
        with haproxy(home, stack.urls, lines) as port:
            wait_until(lambda port=port, status=status: _status(port) == status)
    with haproxy(home, stack.urls, shown) as port:
        wait_until(lambda: _status(port) == 200)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            check_rolling_restart(client, stack)


def _status(port: int) -> int:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/livez", timeout=60).status_code
    except httpx.TransportError:
        return 0
