"""The commands of README.md and of docs/tour.md work, and get the answers that the pages show."""

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import wait_until
from tests.system.up_command import Up

README = Path(__file__).parents[2] / "README.md"
TOUR = README.parent / "docs" / "tour.md"
PRINTED_URL = "http://127.0.0.1:8080"
DEAD_LETTERS = "dlq.billing"
SEPARATOR = "\x1e"
DIFFERS = "…"

# The one filter the tour gives to jq, for machines that have none.
JQ = f"""#!{sys.executable}
import json, sys
(filter,) = sys.argv[1:]
assert filter == '{{member_id, acknowledgements: [.batches[] | del(.records) + {{type:"accept"}}]}}', filter
fetched = json.load(sys.stdin)
for batch in fetched["batches"]:
    del batch["records"]
    batch["type"] = "accept"
json.dump({{"member_id": fetched["member_id"], "acknowledgements": fetched["batches"]}}, sys.stdout)
"""


LSOF = f"""#!{sys.executable}
import sys, psutil
assert sys.argv[1] == "-ti" and sys.argv[3] == "-sTCP:LISTEN", sys.argv
port = int(sys.argv[2].removeprefix("tcp:"))
listening = [each.pid for each in psutil.net_connections("tcp") if each.status == "LISTEN" and each.laddr.port == port]
print(*listening)
"""
"""The one use of lsof."""


def section(page: Path, title: str) -> str:
    """The text below a heading of the second level."""
    return page.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def blocks(text: str) -> list[tuple[str, str]]:
    """The fenced blocks as (language, content), in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def calls(page: Path, title: str) -> list[tuple[str, str]]:
    """The shell blocks of a section with the answer that is shown below each; "" where none is."""
    found = blocks(section(page, title))
    commands = [content for language, content in found if language == "sh"]
    answers = [content for language, content in found if language == "json"]
    silent = len(commands) - len(answers)
    assert [language for language, _ in found] == ["sh"] * silent + ["sh", "json"] * len(answers)
    return list(zip(commands, [""] * silent + answers, strict=True))


def matches(shown: str, printed: str) -> bool:
    """Whether an answer is the one that is shown: it may be broken into lines there, and `…` stands for anything."""
    parts = "".join(line.strip() for line in shown.splitlines()).split(DIFFERS)
    return re.fullmatch(".*".join(map(re.escape, parts)), printed.strip()) is not None


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH with jq and lsof on it."""
    for name, text in (("jq", JQ), ("lsof", LSOF)):
        if shutil.which(name) is None:
            program = tmp_path / name
            program.write_text(text)
            program.chmod(0o755)
            monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def test_the_first_two_calls_answer_as_shown(stack: Stack) -> None:
    assert shutil.which("curl"), "the first calls need curl: install it to run this test"
    shown = calls(README, "Start")
    assert len(shown) == 2
    for command, answer in shown:
        check_shown(command, answer, stack.url)


def check_shown(command: str, answer: str, url: str) -> None:
    """Run a command of a page at another address."""
    command = command.replace(PRINTED_URL, url).replace("tcp:8080", f"tcp:{url.rpartition(':')[2]}")
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, timeout=300)
    assert matches(answer, done.stdout), f"{command}answered\n{done.stdout}\nand not\n{answer}"


@pytest.mark.usefixtures("path")
def test_a_killed_gateway_loses_nothing_as_shown(
    tmp_path: Path, new_database: Callable[[], str], new_redis: Callable[[], str]
) -> None:
    stores = ("--postgres-url", new_database(), "--redis-url", new_redis())
    with Up(tmp_path, tmp_path / "data", *stores, "--separate") as up:
        url = up.ready()
        check_shown(*calls(README, "Start")[0], url)
        ((command, answer),) = calls(README, "Five promises")
        gateway = up.process_of("sharequeue_gateway")
        check_shown(command, answer, url)
        assert up.process_of("sharequeue_gateway") != gateway
        assert "the gateway is started again in 1 s" in up.stderr
        assert up.end(signal.SIGINT) == 0


def wait_for_dead_letter(url: str) -> None:
    """The gateway writes it after it has answered the reject; a script is faster than a reader of the tour."""
    deadline = time.monotonic() + 60
    while (
        httpx.get(f"{url}/v1/topics/{DEAD_LETTERS}/partitions/0/records", timeout=60).json().get("log_end_offset", 0)
        < 1
    ):
        assert time.monotonic() < deadline, "the dead letter was not written"
        time.sleep(0.02)


@pytest.mark.usefixtures("path")
def test_the_tour_gets_the_answers_it_shows(stack: Stack) -> None:
    assert shutil.which("curl"), "the tour needs curl: install it to run this test"
    tour = calls(TOUR, "With curl")
    assert len(tour) > 8
    commands, (_, *answers) = zip(*tour, strict=True)
    script = f"printf '{SEPARATOR}'\n".join(commands).replace(PRINTED_URL, stack.url)
    shell = subprocess.Popen(["bash", "-e"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert shell.stdin is not None
    before, after = split_before(script, DEAD_LETTERS)
    shell.stdin.write(before)
    shell.stdin.flush()
    wait_for_dead_letter(stack.url)
    printed, _ = shell.communicate(after, timeout=300)
    assert shell.returncode == 0
    nothing, *outputs = printed.split(SEPARATOR)
    assert not nothing
    for command, shown, output in zip(commands[1:], answers, outputs, strict=True):
        assert matches(shown, output), f"{command}answered\n{output}\nand not\n{shown}"


def split_before(script: str, text: str) -> tuple[str, str]:
    """The script in two, at the beginning of the line that names `text`."""
    at = script.rindex("\n", 0, script.index(text)) + 1
    return script[:at], script[at:]


def test_the_worker_works(stack: Stack, tmp_path: Path) -> None:
    ((language, content),) = blocks(section(README, "A worker"))
    assert (language, content.splitlines()[0]) == ("python", "# shop.py")
    (tmp_path / "shop.py").write_text(content.replace(PRINTED_URL, stack.url))
    orders = {"records": [{"value": {}}, {"value": {"id": 1}}]}
    assert httpx.post(f"{stack.url}/v1/topics/orders/records", json=orders, timeout=60).status_code == 200
    command = [Path(sys.executable).with_name("sharequeue"), "work", "shop:app"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "packed 1\n"
        worker.terminate()
        assert worker.wait(60) == 0
    letters = f"{stack.url}/v1/share-groups/fulfilment/dead-letters"
    (letter,) = wait_until(lambda: httpx.get(letters, timeout=60).json()["dead_letters"])
    assert letter["reason"] == "an order without an id"


def test_links_in_documents_have_targets() -> None:
    """Relative links of the documents name files that are there."""
    root = README.parent
    documents = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("services/*/README.md")]
    assert len(documents) > 10
    broken = [
        f"{document.relative_to(root)}: {target}"
        for document in documents
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", document.read_text())
        if not (document.parent / target).exists()
    ]
    assert not broken
