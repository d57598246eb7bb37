"""`make proxy-test`: the nginx configurations of docs/proxy.md, as they stand, in a real nginx before a stack.

Only its addresses and the paths of its certificate are others. It must pass on what the page says: fetches that wait,
streams without a buffer, large bodies, ids as they were encoded, `Host` for pages of the public name, and a hang-up.
`--smoke` leaves out HAProxy. Tokens of teams come before a stack of their own, whose callers need keys.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from sharequeue.stack.process import free_port
from sharequeue.stack.stack import Stack, temporary_stack
from tests.debian import programs
from tests.http.calls import wait_until
from tests.proxy.checks import NAME, PAGE, answers, certificate, check_all
from tests.proxy.haproxy import check_health_checks
from tests.proxy.pooler import check_pooler
from tests.proxy.rolling import check_rolling_restart
from tests.proxy.teams import check_teams, write_teams
from tests.system.test_readme import blocks

GATEWAY: Final = "127.0.0.1:8080 fail_timeout=2s;"


def configuration(home: Path, port: int, stack: Stack, *, teams: bool) -> str:
    """The page's configuration, with what must be different here. `teams`: with what it adds for their tokens."""
    shown, added = (content for language, content in blocks(PAGE.read_text()) if language == "nginx")
    if teams:
        beside, inside = added.replace("/etc/nginx/teams.map", str(home / "teams.map")).split("# in `location /`\n")
        shown = f"{beside}{shown.replace('location / {', f'location / {{{inside}')}"
    changes = {
        f"server {GATEWAY}": "\n".join(f"server {urlsplit(url).netloc} {GATEWAY.split()[1]}" for url in stack.urls),
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "/etc/nginx/queue.pem": str(home / "queue.pem"),
        "/etc/nginx/queue.key": str(home / "queue.key"),
    }
    for there, here in changes.items():
        assert shown.count(there) == 1, there
        shown = shown.replace(there, here)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {home / kind};\n" for kind in kinds)
    head = f"daemon off;\npid {home / 'nginx.pid'};\nerror_log {home / 'error.log'};\nevents {{}}\n"
    return f"{head}http {{\naccess_log off;\n{temporary}{shown}}}\n"


@contextmanager
def nginx(home: Path, stack: Stack, *, teams: bool = False) -> Iterator[httpx.Client]:
    """Returns: a client of the proxy, which calls it by its public name."""
    port = free_port()
    trusting = certificate(home)
    file = home / "nginx.conf"
    file.write_text(configuration(home, port, stack, teams=teams))
    process = subprocess.Popen(
        [programs("nginx", ("nginx",), home) / "nginx", "-p", home, "-c", file, "-e", home / "error.log"],
        stderr=subprocess.PIPE,
    )
    headers = {"Host": f"{NAME}:{port}"}
    try:
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", headers=headers, verify=trusting, timeout=60) as client:
            wait_until(lambda: process.poll() is not None or answers(client, 401 if teams else 200))
            assert process.poll() is None, (home / "error.log").read_text()
            yield client
    finally:
        process.terminate()
        process.wait(60)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="sharequeue-proxy-") as folder:
        home = Path(folder)
        home.chmod(0o755)  # nginx's workers and PostgreSQL may be other users
        settings = {"SHAREQUEUE_GATEWAY_ALLOW_HOSTS": NAME}
        with temporary_stack(home / "stack", gateways=2, settings=settings) as stack, nginx(home, stack) as client:
            check_all(client, stack)
            print("proxy: nginx passes on fetches, streams, bodies, names and a hang-up, as docs/proxy.md says")
            with temporary_stack(home / "guarded", settings=settings, require_keys=True) as guarded:
                file = home / "teams.map"
                tokens = write_teams(guarded, file)
                with nginx(home, guarded, teams=True) as teams:
                    check_teams(teams, tokens)
            print("proxy: nginx shows gateways the key of a team for its token, as docs/proxy.md says")
            check_pooler(home)
            print(
                "proxy: PgBouncer lends connections for sessions, and is refused otherwise, as docs/production.md says"
            )
            if "--smoke" not in sys.argv:
                check_rolling_restart(client, stack)
                print("proxy: behind nginx gateways are restarted in turn, and no call fails twice")
                check_health_checks(home, stack)
                print(
                    "proxy: HAProxy checks the gateways' health, as docs/proxy.md says, also while they are restarted"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
