"""`python -m sdks [python …]`: generates the clients, compiles them, and plays the contract suite on a real stack.

A client is generated and installed again only if the document or its configuration changed.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from sharequeue.http.openapi import to_3_0
from sharequeue.stack.stack import Stack
from tests.openapi.public import public_document

HERE: Final = Path(__file__).parent
CASES: Final = HERE / "cases.json"
OAPI_CODEGEN: Final = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.5.0"
STEP_S: Final = 900


def run(command: Sequence[str | Path], folder: Path, environment: dict[str, str] | None = None) -> None:
    """Run a command; its output is shown if it fails. Raises: CalledProcessError."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        check=False,
        timeout=STEP_S,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        print(done.stdout[-8000:], done.stderr[-8000:], file=sys.stderr)
    done.check_returncode()


def changed(folder: Path, name: str, *parts: str) -> Callable[[], None] | None:
    """Whether a step must be done again because `parts` changed. Returns: what to call when it is done; None: it need not."""
    mark = folder / ".made" / name
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    if mark.exists() and mark.read_text() == digest:
        return None

    def made() -> None:
        mark.parent.mkdir(exist_ok=True)
        mark.write_text(digest)

    return made


def generator() -> Path:
    """openapi-generator, in an environment of its own."""
    folder = HERE / "python"
    wanted = (folder / "requirements.txt").read_text()
    made = changed(folder, "environment", wanted)
    if made is not None:
        run((sys.executable, "-m", "venv", ".venv"), folder)
        run((".venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"), folder)
        made()
    return folder / ".venv" / "bin" / "openapi-generator-cli"


def python(current: dict[str, Any]) -> Sequence[str | Path]:
    """Returns: the command of the suite."""
    folder = HERE / "python"
    tool = generator()
    document = json.dumps(current, indent=1)
    made = changed(folder, "generated", document, (folder / "openapi-generator.yaml").read_text())
    if made is not None:
        (folder / "openapi.json").write_text(document)
        command = (tool, "generate", "-i", "openapi.json", "-c", "openapi-generator.yaml", "-o", "generated")
        run(command, folder)
        made()
    programs = [(folder / name).read_text() for name in ("contract.py", "worker.py")]
    made = changed(folder, "checked", document, *programs)
    if made is not None:
        check = ("contract.py", "worker.py", "--strict", "--follow-imports=silent", "--cache-dir=.made/mypy")
        run((".venv/bin/mypy", *check), folder, {"MYPYPATH": str(folder / "generated")})
        made()
    return (folder / ".venv/bin/python", "contract.py", CASES)


def typescript(current: dict[str, Any]) -> Sequence[str | Path]:
    """Returns: the command of the suite."""
    folder = HERE / "typescript"
    made = changed(folder, "environment", (folder / "package.json").read_text())
    if made is not None:
        run(("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"), folder)
        made()
    document = json.dumps(current, indent=1)
    sources = [(folder / name).read_text() for name in ("contract.ts", "worker.ts", "tsconfig.json")]
    made = changed(folder, "generated", document, *sources)
    if made is not None:
        (folder / "openapi.json").write_text(document)
        (folder / "generated").mkdir(exist_ok=True)
        run(("npx", "openapi-typescript", "openapi.json", "-o", "generated/schema.d.ts"), folder)
        run(("npx", "tsc"), folder)
        made()
    return ("node", "generated/js/contract.js", CASES)


def go(current: dict[str, Any]) -> Sequence[str | Path]:
    """Returns: the command of the suite."""
    folder = HERE / "go"
    document = json.dumps(to_3_0(current), indent=1)
    sources = [(folder / name).read_text() for name in ("contract.go", "worker.go", "go.mod", "oapi-codegen.yaml")]
    made = changed(folder, "generated", document, OAPI_CODEGEN, *sources)
    if made is not None:
        (folder / "openapi.json").write_text(document)
        (folder / "generated").mkdir(exist_ok=True)
        run(("go", "run", OAPI_CODEGEN, "-config", "oapi-codegen.yaml", "openapi.json"), folder)
        run(("go", "vet", "./..."), folder)
        run(("go", "build", "-o", "generated/contract", "."), folder)
        made()
    return ("generated/contract", CASES)


def java(current: dict[str, Any]) -> Sequence[str | Path]:
    """Returns: the command of the suite."""
    folder = HERE / "java"
    document = json.dumps(current, indent=1)
    names = ("Contract.java", "Worker.java", "pom.xml", "openapi-generator.yaml")
    made = changed(folder, "generated", document, *((folder / name).read_text() for name in names))
    if made is not None:
        (folder / "openapi.json").write_text(document)
        command = (generator(), "generate", "-i", "openapi.json", "-c", "openapi-generator.yaml", "-o", "generated")
        run(command, folder)
        libraries = ("dependency:copy-dependencies", "-DoutputDirectory=generated/lib")
        run(("mvn", "--quiet", "--batch-mode", "compile", *libraries), folder)
        made()
    return ("java", "-cp", "generated/target/classes:generated/lib/*", "Contract", CASES)


LANGUAGES: Final = {"python": python, "typescript": typescript, "go": go, "java": java}


class Stub(BaseHTTPRequestHandler):
    """Refuses createTopic with the status in the topic's name, as a gateway would: no caller can make a stack do so at will."""

    PROBLEMS: Final = {
        415: ("INVALID_REQUEST", 42, False, True),
        429: ("THROTTLING_QUOTA_EXCEEDED", 89, True, True),
        503: ("REQUEST_TIMED_OUT", 7, True, False),
    }

    def do_POST(self) -> None:
        """Answer any POST."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status = int(body["name"].rsplit("-", 1)[1])
        code, number, retriable, definite = self.PROBLEMS[status]
        problem = {
            "type": "urn:sharequeue:problem:stub",
            "title": "Refused",
            "status": status,
            "detail": "refused by the stub",
            "code": code,
            "kafka_code": number,
            "retriable": retriable,
            "definite": definite,
            "request_id": "stub",
        }
        raw = json.dumps(problem).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/problem+json")
        self.send_header("Content-Length", str(len(raw)))
        if status != 415:
            self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


def main(wanted: Sequence[str]) -> int:
    """Returns: 1 if a client does not compile, or fails a case."""
    current = public_document()
    commands = {}
    for name in wanted or LANGUAGES:
        started = time.monotonic()
        commands[name] = LANGUAGES[name](current)
        print(f"{name}: generated and compiled in {time.monotonic() - started:.0f} s", flush=True)
    stub = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    threading.Thread(target=stub.serve_forever, daemon=True).start()
    failed = False
    with tempfile.TemporaryDirectory(prefix="sharequeue-sdks-") as folder:
        stack = Stack(
            Path(folder) / "stack", gateway_port=0, coordinator_port=0, share_coordinator_port=0, tell=lambda _: None
        )
        try:
            stack.start()
            environment = {
                **os.environ,
                "SHAREQUEUE_URL": stack.url,
                "SHAREQUEUE_STUB_URL": f"http://127.0.0.1:{stub.server_port}",
                "SHAREQUEUE_TOKEN": (Path(folder) / "stack/cluster.token").read_text().strip(),
            }
            for name, command in commands.items():
                environment["PYTHONPATH"] = str(HERE / name / "generated")
                started = time.monotonic()
                done = subprocess.run(
                    [str(part) for part in command],
                    cwd=HERE / name,
                    env=environment,
                    check=False,
                    timeout=STEP_S,
                    capture_output=True,
                    text=True,
                    stdin=subprocess.DEVNULL,
                )
                lines = done.stdout.splitlines()
                for line in lines[:-1]:
                    if not line.startswith("ok "):
                        print(f"{name}: {line}")
                print(
                    f"{name}: {lines[-1] if lines else 'no output'}, in {time.monotonic() - started:.0f} s", flush=True
                )
                if done.returncode:
                    print(done.stderr[-4000:], file=sys.stderr)
                    failed = True
        finally:
            stack.stop()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
