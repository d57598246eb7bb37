"""`make traefik-test`: the Traefik configuration of docs/proxy.md, as it stands, in a real Traefik before a stack.

Only addresses, and where the certificate is, are others. Go builds Traefik from its module, once, into `dist/`. That
takes minutes, and two parts are others: of the DNS providers for certificates (hundreds of modules) there is none, and
basic and digest authentication, which the configuration does not have, are of an earlier version.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from sharequeue.stack.process import free_port
from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import wait_until
from tests.proxy.checks import NAME, PAGE, answers, certificate, check_all, produce
from tests.system.test_readme import blocks

VERSION: Final = "v3.7.13"
MODULE: Final = "github.com/traefik/traefik/v3"
PROGRAM: Final = PAGE.parents[1] / "dist" / f"traefik-{VERSION}"
LEGO: Final = "github.com/go-acme/lego/v5"
NO_DNS_PROVIDERS: Final = f"""package dns

import (
	"errors"

	"{LEGO}/challenge"
)

// NewDNSChallengeProviderByName knows none.
func NewDNSChallengeProviderByName(name string) (challenge.Provider, error) {{
	return nil, errors.New("no DNS provider is built in: " + name)
}}
"""
EXTENSION: Final = """package ext

type HTTP struct{}
type Router struct{}

func (in *HTTP) DeepCopyInto(out *HTTP)     { *out = *in }
func (in *Router) DeepCopyInto(out *Router) { *out = *in }
"""
"""The module `dynamic/ext`, which a module's archive leaves out because it is one of its own."""
AUTH: Final = ("github.com/containous/go-http-auth", "v0.4.1-0.20200324110947-a37a7636d23e")
AUTH_SUMS: Final = f"""{" ".join(AUTH)} h1:D+uTEzDZc1Fhmd0Pq06c+O9+KkAyExw0eVmu/NOqaHU=
{" ".join(AUTH)}/go.mod h1:s8kLgBQolDbsJOPVIGCEEv9zGAKUUf/685Gi0Qqg8z8=
"""
STREAM_S: Final = 70
"""Longer than Traefik's `readTimeout`."""


def module(name: str, version: str, to: Path) -> Path:
    """A copy of a Go module that may be changed."""
    said = subprocess.run(
        ["go", "mod", "download", "-json", f"{name}@{version}"], check=True, stdout=subprocess.PIPE, cwd=to.parent
    ).stdout
    shutil.copytree(json.loads(said)["Dir"], to)
    for folder, _, files in os.walk(to):
        for path in (Path(folder), *(Path(folder, file) for file in files)):
            path.chmod(0o755)
    return to


def program() -> Path:
    """Traefik of this version. Go keeps what it has compiled, so a second build is quick."""
    if PROGRAM.exists():
        return PROGRAM
    with tempfile.TemporaryDirectory(prefix="sharequeue-traefik-") as folder:
        home = Path(folder)
        source = module(MODULE, VERSION, home / "traefik")
        (used,) = {line.split()[1] for line in (source / "go.mod").read_text().splitlines() if f"\t{LEGO} " in line}
        lego = module(LEGO, used, home / "lego")
        (lego / "providers" / "dns" / "zz_gen_dns_providers.go").write_text(NO_DNS_PROVIDERS)
        extension = source / "pkg" / "config" / "dynamic" / "ext"
        extension.mkdir()
        (extension / "go.mod").write_text("module github.com/traefik/traefik/dynamic/ext\n")
        (extension / "ext.go").write_text(EXTENSION)
        for other, by in ((LEGO, str(lego)), ("github.com/abbot/go-http-auth", "@".join(AUTH))):
            subprocess.run(["go", "mod", "edit", "-replace", f"{other}={by}"], cwd=source, check=True)
        with (source / "go.sum").open("a") as sums:
            sums.write(AUTH_SUMS)
        PROGRAM.parent.mkdir(exist_ok=True)
        build = ["go", "build", "-trimpath", "-ldflags=-s -w", "-o", PROGRAM, "./cmd/traefik"]
        subprocess.run(build, cwd=source, check=True)
    return PROGRAM


def replaced(text: str, changes: dict[str, str]) -> str:
    for there, here in changes.items():
        assert text.count(there) == 1, there
        text = text.replace(there, here)
    return text


def configuration(home: Path, port: int, stack: Stack) -> Path:
    """Write the page's two configurations, with what must be different here. Returns: the static one."""
    static, dynamic = [content for language, content in blocks(PAGE.read_text()) if language == "yaml"]
    (home / "dynamic").mkdir()
    (home / "dynamic" / "queue.yml").write_text(replaced(dynamic, {"http://127.0.0.1:8080": stack.url}))
    pair = {"certFile": str(home / "queue.pem"), "keyFile": str(home / "queue.key")}
    (home / "dynamic" / "tls.yml").write_text(yaml.safe_dump({"tls": {"certificates": [pair]}}))
    changes = {'":443"': f'"127.0.0.1:{port}"', "/etc/traefik/dynamic": str(home / "dynamic")}
    (home / "traefik.yml").write_text(replaced(static, changes))
    return home / "traefik.yml"


@contextmanager
def traefik(home: Path, stack: Stack) -> Iterator[httpx.Client]:
    """Yields: a client of the proxy, which calls it by its public name."""
    port = free_port()
    trusting = certificate(home)
    with (home / "traefik.log").open("wb") as log:
        process = subprocess.Popen(
            [program(), f"--configFile={configuration(home, port, stack)}"], stdout=log, stderr=log
        )
    headers = {"Host": f"{NAME}:{port}"}
    extensions = {"sni_hostname": NAME}
    try:
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", headers=headers, verify=trusting, timeout=60) as client:
            client.event_hooks["request"] = [lambda request: request.extensions.update(extensions)]
            wait_until(lambda: process.poll() is not None or answers(client), 60)
            assert process.poll() is None, (home / "traefik.log").read_text()
            yield client
    finally:
        process.terminate()
        process.wait(60)


def check_long_stream(client: httpx.Client) -> None:
    """A stream outlives the time in which Traefik wants to have read a request."""
    path = "/v1/share-groups/lasting/stream?topic=orders&member_id=desk-2"
    begun = time.monotonic()
    with client.stream("GET", path, headers={"Accept": "text/event-stream"}) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        while time.monotonic() - begun < STREAM_S:
            next(lines)
        produce(client, "last")
        records: list[Any] = []
        while "last" not in [record["value"] for record in records]:
            line = next(lines)
            if line.startswith("data: {"):
                records = [record for batch in json.loads(line[6:])["batches"] for record in batch["records"]]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="sharequeue-proxy-") as folder:
        home = Path(folder)
        home.chmod(0o755)  # PostgreSQL may be another user
        settings = {"SHAREQUEUE_GATEWAY_ALLOW_HOSTS": NAME}
        with temporary_stack(home / "stack", settings=settings) as stack, traefik(home, stack) as client:
            check_all(client, stack, other_name=404)  # no router has another name
            check_long_stream(client)
    print(f"proxy: Traefik {VERSION} passes on fetches, streams, bodies, names and a hang-up, as docs/proxy.md says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
