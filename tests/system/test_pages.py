"""The commands of docs/dead-letters.md work, and print what the page shows."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import wait_until
from tests.system.test_readme import PRINTED_URL, blocks, matches

DOCS = Path(__file__).parents[2] / "docs"


def run(stack: Stack, command: str) -> str:
    """What a block of commands prints. `sharequeue` is that of this Python, and its gateway the stack's."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", command.replace(PRINTED_URL, stack.url)],
        env={**os.environ, "PATH": path, "SHAREQUEUE_URL": stack.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def test_the_page_of_dead_letters_prints_what_it_shows(stack: Stack) -> None:
    found = blocks((DOCS / "dead-letters.md").read_text())
    assert [language == "sh" for language, _ in found] == [True, False] * 6
    letters = f"{stack.url}/v1/topics/dlq.packing/partitions/0/records"
    for place in range(0, len(found), 2):
        command, shown = found[place][1], found[place + 1][1]
        printed = run(stack, command)
        lines = list(itertools.zip_longest(shown.splitlines(), printed.splitlines(), fillvalue=""))
        assert all(matches(*line) for line in lines), f"{command}printed\n{printed}\nand not\n{shown}"
        if place == 0:  # a reader is slower than the gateway, a script is faster
            wait_until(lambda: len(httpx.get(letters).json().get("records", ())) == 3)


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
