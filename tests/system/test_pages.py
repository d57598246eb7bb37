"""The commands and programs of the pages for newcomers work, and print what the page shows.

A page is played from its first block to its last, against one stack: `sh` is run by a shell, `python` as a program, and
a block below of another language is what it prints. A program whose first line is `# NAME.py` is a file that the reader
saves. Blocks without a language are what the reader did before: `make up`.
"""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import wait_until
from tests.system.test_readme import PRINTED_URL, TOUR, blocks, matches, section

DOCS = Path(__file__).parents[2] / "docs"


def environment(stack: Stack) -> dict[str, str]:
    """`sharequeue` runs with this Python, against the gateway of the stack."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "SHAREQUEUE_URL": stack.url}


def run(stack: Stack, command: str, shell: Sequence[str] = ("bash", "-ec")) -> str:
    """The output of a block of commands."""
    done = subprocess.run(
        [*shell, command.replace(PRINTED_URL, stack.url)],
        env=environment(stack),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def test_the_page_of_dead_letters_prints_what_it_shows(stack: Stack) -> None:
    found = blocks((DOCS / "dead-letters.md").read_text())
    assert [language == "sh" for language, _ in found] == [True, False] * 7
    letters = f"{stack.url}/v1/topics/dlq.packing/partitions/0/records"
    for place in range(0, len(found), 2):
        command, shown = found[place][1], found[place + 1][1]
        printed = run(stack, command)
        lines = list(itertools.zip_longest(shown.splitlines(), printed.splitlines(), fillvalue=""))
        assert all(matches(*line) for line in lines), f"{command}printed\n{printed}\nand not\n{shown}"
        if place == 0:  # a reader is slower than the gateway, a script is faster
            wait_until(lambda: len(httpx.get(letters, timeout=60).json().get("records", ())) == 3)


def play(stack: Stack, page: str, *, files: int = 0) -> None:
    """Run each block of a page and compare what it prints with what the page shows;
    `files`: so many are programs to save."""
    found = blocks((DOCS / page).read_text())
    saved = 0
    assert found
    for (language, content), (kind, shown) in itertools.pairwise([*found, ("sh", "")]):
        if language == "python" and re.match(r"# \w+\.py\n", content):
            saved += 1
        elif language in ("sh", "python"):
            printed = run(stack, content, ("bash", "-ec") if language == "sh" else (sys.executable, "-c"))
            expected = "" if kind in ("sh", "python") else shown
            lines = expected.splitlines(), printed.splitlines()
            same = all(itertools.starmap(matches, itertools.zip_longest(*lines, fillvalue="")))
            assert same or matches(expected, printed), f"{content}printed\n{printed}\nand not\n{expected}"
    assert saved == files


def test_the_start_page_takes_five_minutes(stack: Stack) -> None:
    """All of its commands take seconds, and print what it shows. Each step follows from the one before."""
    play(stack, "start.md")


def test_the_page_of_transactions_prints_what_it_shows(stack: Stack) -> None:
    play(stack, "transactions.md")


def test_the_programs_of_the_worker_page_print_what_it_shows(stack: Stack) -> None:
    play(stack, "worker.md", files=3)


def test_the_page_of_clients_begins_with_a_backoff(stack: Stack) -> None:
    """`make sdks` runs the other commands of the page."""
    (begin,) = (content for language, content in blocks((DOCS / "sdks.md").read_text()) if language == "sh")
    assert run(stack, f"{begin}\necho $SHAREQUEUE") == f"{Path.cwd()}\n"
    config = httpx.get(f"{stack.url}/v1/share-groups/billing/config", timeout=60).text
    assert '"share.retry.backoff.ms":"1000,3000,9000,27000,81000,243000,600000"' in config


def test_the_recipes_print_what_they_show(stack: Stack) -> None:
    play(stack, "recipes.md")


def test_the_page_of_streams_prints_what_it_shows(stack: Stack) -> None:
    play(stack, "streams.md")


def test_the_page_of_scheduled_records_prints_what_it_shows(stack: Stack) -> None:
    play(stack, "scheduled.md")


def test_the_verbs_of_another_queue_print_what_they_show(stack: Stack) -> None:
    play(stack, "migrating.md", files=4)


def test_the_workers_beside_those_of_other_queues_print_what_the_page_shows(stack: Stack, tmp_path: Path) -> None:
    """Each program sends one record when it is run, and gets it when `sharequeue work` runs it."""
    found = blocks((DOCS / "migrating.md").read_text())
    programs = {
        named[1]: (content, shown)
        for (_, content), (_, shown) in itertools.pairwise(found)
        if (named := re.match(r"# (\w+)\.py\n", content))
    }
    assert len(programs) == 4
    running = {}
    try:
        for name, (content, _) in programs.items():
            (tmp_path / f"{name}.py").write_text(content.replace(PRINTED_URL, stack.url))
            command = [Path(sys.executable).with_name("sharequeue"), "work", f"{name}:app"]
            running[name] = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        for name in programs:
            subprocess.run([sys.executable, f"{name}.py"], cwd=tmp_path, check=True, timeout=60)
        for name, (_, shown) in programs.items():
            stdout = running[name].stdout
            assert stdout is not None
            assert stdout.readline() == shown
            running[name].terminate()
            assert running[name].wait(timeout=60) == 0
    finally:
        for process in running.values():
            process.kill()
            process.communicate()


def test_the_five_lines_of_the_worker_page_run(stack: Stack, tmp_path: Path) -> None:
    """One record is done, one a dead letter with its reason, one does not fit. SIGTERM ends the program with 0."""
    (program,) = [
        content for _, content in blocks((DOCS / "worker.md").read_text()) if content.startswith("# shop.py\n")
    ]
    (tmp_path / "shop.py").write_text(
        program.replace(PRINTED_URL, stack.url).replace("mails", "five-mails").replace("senders", "five-senders")
    )
    values = [{"to": "ann@example.org"}, {"to": "nobody"}, {"too": ""}]
    with httpx.Client(base_url=f"{stack.url}/v1/topics", timeout=60) as http:
        http.post("/five-mails/records", json={"records": [{"value": value} for value in values]}).raise_for_status()
        command = [Path(sys.executable).with_name("sharequeue"), "work", "shop:app"]
        running = subprocess.Popen(command, cwd=tmp_path, env=environment(stack), stdout=subprocess.PIPE, text=True)
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "a mail to ann@example.org\n"
            letters = "/dlq.five-senders/partitions/0/records"
            found = wait_until(lambda: len(got := http.get(letters).json().get("records", ())) == 2 and got)
            running.terminate()
            assert running.wait(timeout=60) == 0
        finally:
            running.kill()
            running.communicate()
    assert {letter["headers"]["__dlq.errors.reason"] for letter in found} == {
        "no address: nobody",
        "the payload does not fit: Object missing required field `to`",
    }


def test_the_worker_settles_each_record_and_stops_at_sigterm(stack: Stack, tmp_path: Path) -> None:
    """The worker of docs/worker.md: done, hopeless, failed; and a SIGTERM gives back what it did not begin."""
    (program,) = [
        content for _, content in blocks((DOCS / "worker.md").read_text()) if content.startswith("# worker.py\n")
    ]
    file = tmp_path / "worker.py"
    failing = 'print("a mail to", address, flush=True)'
    assert program.count(failing) == 1
    slow = f'{failing}\n    if address == "slow":\n        sys.stdin.readline()\n    if address == "fails":\n        raise OSError(address)'
    names = {
        "senders": "page-senders",
        "mails": "page-mails",
        PRINTED_URL: stack.url,
        failing: slow,
        "import signal\n": "import signal\nimport sys\n",
    }
    for shown, ours in names.items():
        assert shown in program
        program = program.replace(shown, ours)
    file.write_text(program)
    addresses = [{"to": "ann"}, {}, {"to": "fails"}, {"to": "slow"}, {"to": "later"}]
    with httpx.Client(base_url=f"{stack.url}/v1", timeout=60) as http:
        later = {"config": {"share.retry.backoff.ms": "3600000"}}
        assert http.patch("/share-groups/page-senders/config", json=later).status_code == 200
        records = {"records": [{"value": address} for address in addresses]}
        assert http.post("/topics/page-mails/records", json=records).status_code == 200
        pipe = subprocess.PIPE
        worker = subprocess.Popen([sys.executable, str(file)], stdin=pipe, stdout=pipe, text=True)
        try:
            assert worker.stdout is not None
            lines = [worker.stdout.readline() for _ in range(3)]
            assert lines == ["a mail to ann\n", "a mail to fails\n", "a mail to slow\n"]
            worker.terminate()
            assert worker.communicate("go on\n", timeout=300)[0] == ""
            assert worker.returncode == 0
        finally:
            worker.kill()
            worker.wait()

        def settled() -> dict[int, tuple[str, int]] | None:
            (partition,) = http.get("/share-groups/page-senders/in-flight").json()["partitions"]
            found = {
                offset: (batch["delivery_state"], batch["attempt"])
                for batch in partition["batches"]
                for offset in range(batch["first_offset"], batch["last_offset"] + 1)
            }
            return found if 1 not in found else None  # until its dead letter is written

        by_offset = wait_until(settled)
        assert 0 not in by_offset
        assert by_offset[2] == ("AVAILABLE", 1)
        assert by_offset[3][0] == "ACKNOWLEDGED"
        assert by_offset.get(4, ("AVAILABLE", 0))[0] == "AVAILABLE", "or it was not fetched at all"
        fetched = http.post(
            "/share-groups/page-senders/fetch", json={"topics": ["page-mails"], "max_wait_ms": 0}
        ).json()
        assert [(batch["first_offset"], batch["attempt"]) for batch in fetched["batches"]] == [(4, 1)]
        (letter,) = http.get("/topics/dlq.page-senders/partitions/0/records").json()["records"]
        assert letter["headers"]["__dlq.errors.reason"] == "no address: 'to'"


def test_the_commands_of_the_command_line_do_what_the_tour_says(stack: Stack) -> None:
    """Each line is a command. The one with `--follow` ends by Ctrl-C, when it has printed a record."""
    ((language, block),) = blocks(section(TOUR, "With the command line"))
    assert language == "sh"
    printed = []
    for line in block.splitlines():
        if "--follow --json" in line:
            shell = ["bash", "-c", f"exec {line}"]
            with subprocess.Popen(shell, env=environment(stack), stdout=subprocess.PIPE, text=True) as following:
                assert following.stdout is not None
                deadline = threading.Timer(180, following.kill)
                deadline.start()
                printed.append(following.stdout.readline())
                following.send_signal(signal.SIGINT)
                following.communicate()
                deadline.cancel()
            assert following.returncode == 0, line
        else:
            printed.append(run(stack, line))
        if "--reject" in line:  # a reader is slower than the gateway, a script is faster
            letters = f"{stack.url}/v1/topics/dlq.sums/partitions/0/records"
            wait_until(lambda url=letters: len(httpx.get(url).json().get("records", ())) == 5)
    produced, consumed, rejected, followed, topics, letters, in_flight, described, config, redriven, activity = printed
    assert "1000 records" in produced
    assert consumed.startswith("1\n2\n3\n4\n5\n")
    assert rejected.startswith("6\n7\n8\n9\n10\n")
    assert json.loads(followed)["value"] == "11"
    assert {"numbers", "dlq.sums"} <= {*topics.split()}
    assert [json.loads(line)["headers"]["__dlq.errors.reason"] for line in letters.splitlines()] == ["not prime"] * 5
    assert re.search(r"^numbers +0 .* AVAILABLE ", in_flight, re.MULTILINE)
    assert re.search(r"^sums +Empty +- +\d+ +\d+\w +.* 5 +\d+$", described, re.MULTILINE), described
    assert re.search(r"^share\.delivery\.count\.limit +3\b", config, re.MULTILINE)
    assert redriven == "5 dead letters of sums are redriven\n"
    assert re.search(r"^\S+ .*\b5$", activity, re.MULTILINE)


@pytest.mark.parametrize("page", ["concepts.md", "is-it-for-me.md", "index.md", "promises.md"])
def test_pages_without_programs_show_no_commands_that_nobody_ran(page: str) -> None:
    assert {language for language, _ in blocks((DOCS / page).read_text())} <= {"text"}


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_each_link_of_a_page_leads_to_a_file(page: Path) -> None:
    """Links to headings of other pages too."""
    for target in _links(page.read_text()):
        name, _, heading = target.partition("#")
        file = (page.parent / name) if name else page
        assert file.exists(), f"{page.name} links to {target}"
        if heading and file.suffix == ".md":
            assert heading in {_anchor(line) for line in file.read_text().splitlines() if line.startswith("#")}, target


def _links(text: str) -> list[str]:
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]


def _anchor(line: str) -> str:
    return re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()).replace(" ", "-")
