"""HAProxy's health checks, as a sentence of docs/proxy.md shows them, against a gateway.

HAProxy of itself sends no `Host`, which a gateway refuses: without the shown lines the gateway is down, with them up.
"""

import subprocess
from pathlib import Path
from typing import Final

import httpx

from sharequeue.stack.process import free_port
from sharequeue.stack.stack import Stack
from tests.debian import with_libraries
from tests.http.calls import wait_until
from tests.shown.kinds import of_kind

PACKAGES: Final = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")


def check_health_checks(home: Path, stack: Stack) -> None:
    """Through the backend whose gateway is up, a call passes; without it, HAProxy answers 503."""
    program, environment = with_libraries("haproxy", PACKAGES, home)
    address = stack.url.removeprefix("http://")
    shown = sorted(of_kind("haproxy"), key=lambda line: not line.startswith("option"))
    for lines, status in ((shown, 200), (["option httpchk GET /readyz"], 503)):
        port = free_port()
        file = home / "haproxy.cfg"
        file.write_text(
            "\n".join(
                (
                    "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s",
                    f"frontend web\n bind 127.0.0.1:{port}\n default_backend gateways",
                    "backend gateways",
                    *(f" {line}" for line in lines),
                    " default-server inter 200ms fall 1 rise 1",
                    f" server one {address} check\n",
                )
            )
        )
        process = subprocess.Popen([program, "-db", "-f", file], env=environment)
        try:
            wait_until(lambda port=port, status=status: _status(port) == status)
            assert process.poll() is None
        finally:
            process.terminate()
            process.wait(60)


def _status(port: int) -> int:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/livez", timeout=60).status_code
    except httpx.TransportError:
        return 0
