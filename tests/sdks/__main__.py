"""`python -m tests.sdks [python … others tours]`: makes the clients by the commands of docs/sdks.md,
runs the code between its blocks, and plays the contract suite with each.

All languages are made side by side on one real stack. Each begins in an empty folder, `dist/sdks/shop-<language>`; it
is made again only if the document, the page or one of its files changed.
Then the commands of further generators, and the tours: other HTTP clients, without a generator.
`--smoke` plays a few of the cases only, and ends there.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from shutil import rmtree
from typing import Final
from urllib.request import Request, urlopen

from sharequeue.stack.stack import Stack
from tests.sdks.page import PAGE, Section, begin, commands_in, creating, matches, others, renamed, section
from tests.sdks.stub import Stub

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
SDKS: Final = ROOT / "sdks"
MADE: Final = ROOT / "dist/sdks"
CASES: Final = HERE / "cases.json"
CONTRACT: Final = HERE / "contract"
SMOKE: Final = {"produce-unicode", "fetch-accept", "acknowledge-some", "session", "shape-429"}
"""The cases that `--smoke` plays."""
STEP_S: Final = 900
SHORT_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that ends within seconds compiles its code more often than it uses it; see `java -XX:TieredStopAtLevel`."""
ENVIRONMENT: Final = {
    **os.environ,
    "JDK_JAVA_OPTIONS": SHORT_JVM,
    "MAVEN_OPTS": SHORT_JVM,
    "MAVEN_ARGS": "--quiet --batch-mode",
    "npm_config_audit": "false",
    "npm_config_fund": "false",
    "npm_config_package_lock": "false",
    "npm_config_prefer_offline": "true",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_COMPILE": "1",
    "PIP_QUIET": "1",
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
}


@dataclass(frozen=True)
class Language:
    """`suite_files`: of the folder `contract`, which join the files of the page.

    `compiled`: commands that compile the suite, if those that run the program do not.
    `snippets`: the command that runs the code between the blocks of the page.
    `suite`: the command that plays the cases.
    """

    title: str
    suite_files: Sequence[str]
    compiled: str
    snippets: str
    suite: Sequence[str]
    one_main: bool = False
    """Whether a folder can have one program only."""


MYPY: Final = (
    "MYPYPATH=generated mypy --strict --follow-imports=silent contract.py snippets.py worker.py acknowledger.py "
    "producer.py main.py --config-file= --cache-dir=.mypy --python-executable .venv/bin/python"
)
LANGUAGES: Final = {
    "python": Language(
        "Python",
        ("contract.py", "snippets.py"),
        MYPY,
        "PYTHONPATH=generated .venv/bin/python snippets.py",
        (".venv/bin/python", "contract.py"),
    ),
    "typescript": Language(
        "TypeScript",
        ("contract.ts", "snippets.ts"),
        "",
        "node generated/js/snippets.js",
        ("node", "generated/js/contract.js"),
    ),
    "go": Language(
        "Go",
        ("contract.go", "snippets.go"),
        "go vet ./... && go build -o generated/contract .",
        "generated/contract",
        ("generated/contract",),
        one_main=True,
    ),
    "java": Language(
        "Java",
        ("Contract.java", "Snippets.java"),
        "",
        "code=0; java -cp 'generated/target/classes:generated/lib/*' Snippets || code=$?; test $code = 143",
        ("java", "-cp", "generated/target/classes:generated/lib/*", "Contract"),
    ),
}
TOURS: Final = {
    "curl": ("sh", "curl.sh"),
    "requests": (sys.executable, "python.py", "requests"),
    "httpx": (sys.executable, "python.py", "httpx"),
    "fetch of Node.js": ("node", "fetch.mjs"),
    "net/http of Go": ("go", "run", "nethttp.go"),
    "HttpClient of the JDK": ("java", "JdkClient.java"),
}
PARTS: Final = (*LANGUAGES, "others", "tours")


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[bool, str]:
    """Run a command. Returns: whether it succeeded, and what it wrote."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        check=False,
        timeout=STEP_S,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode == 0, done.stdout


class Runner:
    """Makes and plays one language after the other, or several at once. `url`: of a gateway. `cases`: a file."""

    def __init__(self, url: str, cases: Path, environment: Mapping[str, str]) -> None:
        self._url = url
        self._cases = cases
        self._environment = environment
        self._page = PAGE.read_text()
        with urlopen(f"{url}/openapi.json") as answer:
            self._document: bytes = answer.read()

    def play(self, name: str) -> bool:
        """Make a language's client and play the suite. Returns: whether all of it succeeded."""
        language, folder = LANGUAGES[name], MADE / f"shop-{name}"
        if not self._make(name, language, section(language.title, self._page, name), folder):
            return False
        if not self._step(name, language.snippets, folder):
            return False
        environment = {**self._environment, "PYTHONPATH": str(folder / "generated")}
        started = time.monotonic()
        succeeded, said = run((*language.suite, str(self._cases)), folder, environment)
        lines = [line for line in said.splitlines() if not line.startswith("ok ")]
        tell(name, "cases", started, "; ".join(lines[-1:]) if succeeded else "\n".join(lines[-60:]))
        return succeeded

    def _make(self, name: str, language: Language, page: Section, folder: Path) -> bool:
        added = [CONTRACT / file for file in language.suite_files]
        parts = [source.read_bytes() for source in (*sorted((SDKS / name).iterdir()), *added)]
        recipe = f"{page}{language}".encode()
        digest = hashlib.sha256(b"\0".join([self._document, recipe, *parts])).hexdigest()
        mark = folder / "made"
        if mark.exists() and mark.read_text() == digest:
            return True
        rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if not all(self._step(name, command, folder) for command in commands_in(folder, page.commands)):
            return False
        program = folder / page.saved_as
        program.write_text(page.program)
        if not language.one_main:  # so that a compiler runs once for both
            self._add(name, added, folder)
        if not self._step(name, begin(self._page, name), folder):
            return False
        if not self._step(name, " && ".join(page.running.splitlines()), folder, prints=page.printed):
            return False
        if language.one_main:
            program.unlink()
            self._add(name, added, folder)
        if language.compiled and not self._step(name, language.compiled, folder):
            return False
        mark.write_text(digest)
        return True

    def _add(self, name: str, files: Sequence[Path], folder: Path) -> None:
        for file in files:
            (folder / file.name).write_text(renamed(file.read_text(), name))

    def _step(self, name: str, command: str, folder: Path, prints: str = "") -> bool:
        started = time.monotonic()
        log = folder / "stderr"
        succeeded, said = run(("sh", "-ec", f"({command}) 2>stderr" if prints else command), folder, self._environment)
        if prints and not (succeeded and matches(prints, said)):
            succeeded, said = False, f"printed\n{said}\n{log.read_text()}\nand not\n{prints}"
        tell(name, command[:60], started, "" if succeeded else f"FAILED\n{said[-8000:]}")
        return succeeded

    def generate_others(self) -> bool:
        """Run the commands of the other generators, and one that creates a topic. Returns: whether all succeeded."""
        page, folder = others(self._page), MADE / "shop-others"
        if not self._step("others", creating(self._page, "others"), HERE):
            return False
        digest = hashlib.sha256(self._document + page.encode()).hexdigest()
        mark = folder / "made"
        if mark.exists() and mark.read_text() == digest:
            return True
        rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if not all(self._step("others", command, folder) for command in commands_in(folder, page)):
            return False
        mark.write_text(digest)
        return True

    def tour(self, name: str) -> bool:
        """Produce, fetch and acknowledge with an HTTP client. Returns: whether it succeeded."""
        topic = f"tour-{list(TOURS).index(name)}"
        started = time.monotonic()
        succeeded, said = run((*TOURS[name], self._url, topic), SDKS / "tours", self._environment)
        tell(f"tour: {name}", "", started, "" if succeeded else f"FAILED\n{said[-4000:]}")
        return succeeded


def tell(name: str, step: str, started: float, more: str) -> None:
    """Print how long a step took."""
    words = [f"{name}:", step, f"{time.monotonic() - started:.1f} s", more]
    print(" ".join(word for word in words if word), flush=True)


def started_with_keys(stack: Stack) -> dict[str, str]:
    """Start a stack whose callers need keys. Returns: variables: its URL, a key that may do all, one without rights."""
    stack.start()
    assert stack.admin_key is not None
    good = stack.admin_key.read_text().strip()
    headers = {"Authorization": f"Bearer {good}", "Content-Type": "application/json"}
    with urlopen(Request(f"{stack.url}/v1/keys", b'{"principal":"User:poor"}', headers)) as answer:
        poor = json.load(answer)["key"]
    return {"SHAREQUEUE_GUARDED_URL": stack.url, "SHAREQUEUE_KEY_GOOD": good, "SHAREQUEUE_KEY_POOR": poor}


def main() -> int:
    """Returns: 1 if a client cannot be made, or fails a case or a tour."""
    parser = argparse.ArgumentParser(prog="python -m tests.sdks")
    parser.add_argument("wanted", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (all of them)")
    parser.add_argument("--smoke", action="store_true", help="play a few cases with each language, and nothing else")
    arguments = parser.parse_args()
    wanted = arguments.wanted or (LANGUAGES if arguments.smoke else PARTS)
    began = time.monotonic()
    stub = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    threading.Thread(target=stub.serve_forever, daemon=True).start()
    languages = [name for name in reversed(LANGUAGES) if name in wanted]  # Java takes longest
    with tempfile.TemporaryDirectory(prefix="sharequeue-sdks-") as folder:
        stack = Stack(Path(folder) / "stack", temporary=True)
        guarded = Stack(Path(folder) / "guarded", one_process=True, require_keys=True, temporary=True)
        try:
            stack.start()
            keys = {} if arguments.smoke else started_with_keys(guarded)
            tell("stack", "started", began, "")
            environment = {
                **ENVIRONMENT,
                "SHAREQUEUE": str(ROOT),
                "SHAREQUEUE_URL": stack.url,
                "SHAREQUEUE_STUB_URL": f"http://127.0.0.1:{stub.server_port}",
                **keys,
            }
            Stub.gateway = stack.url
            cases = Path(folder) / CASES.name
            every = json.loads(CASES.read_text())
            cases.write_text(json.dumps([case for case in every if not arguments.smoke or case["id"] in SMOKE]))
            runner = Runner(stack.url, cases, environment)
            with ThreadPoolExecutor(len(LANGUAGES)) as pool:
                results = list(pool.map(runner.play, languages))
                if "others" in wanted:
                    results.append(runner.generate_others())
                if "tours" in wanted:
                    results += pool.map(runner.tour, TOURS)
        finally:
            stack.stop()
            guarded.stop()
    tell("all", "", began, "")
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
