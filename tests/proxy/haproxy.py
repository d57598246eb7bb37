"""HAProxy's health checks, as a sentence of docs/proxy.md shows them, against a gateway.

HAProxy of itself sends no `Host`, which a gateway refuses: without the shown lines the gateway is down, with them up.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import httpx

from sharequeue.stack.process import free_port
from sharequeue.stack.stack import Stack
from tests.compose.engine import EngineError
from tests.http.calls import wait_until
from tests.shown.kinds import of_kind

PACKAGES: Final = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")


def haproxy(home: Path) -> tuple[Path, dict[str, str]]:
    """The program of PATH, or of Debian's packages, unpacked below `home`; and its environment. Raises: EngineError."""
    found = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if found is not None:
        return Path(found), dict(os.environ)
    unpacked = home / "haproxy.debian"
    for package in PACKAGES:
        done = subprocess.run(["apt-get", "--quiet", "download", package], cwd=home, capture_output=True, check=False)
        for archive in home.glob(f"{package}_*.deb"):
            subprocess.run(["dpkg-deb", "--extract", archive, unpacked], check=True)
            break
        else:
            raise EngineError(f"apt-get download {package} failed:\n{done.stderr.decode()}")
    (libraries,) = {str(library.parent) for library in unpacked.glob("usr/lib/*/liblua5.3.so.0")}
    return unpacked / "usr" / "sbin" / "haproxy", {**os.environ, "LD_LIBRARY_PATH": libraries}


def check_health_checks(home: Path, stack: Stack) -> None:
    """Through the backend whose gateway is up, a call passes; without it, HAProxy answers 503."""
    program, environment = haproxy(home)
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
