"""docs/sdks.md as `make sdks` reads it: for each language the files to copy, one block of commands, one program."""

import json
import re
from pathlib import Path

import pytest

from tests.sdks.__main__ import CASES, CONTRACT, LANGUAGES, SDKS
from tests.sdks.page import PAGE, begin, code_between_blocks, commands_in, creating, holds, others, section

NO_CODE = {"…", "[]", "{}", "byte[]", "ready: http://127.0.0.1:8080", "make sdks"}
"""Signs, JSON, a type, and a line that a command prints."""


@pytest.mark.parametrize("name", LANGUAGES)
def test_each_language_has_files_commands_and_a_program(name: str) -> None:
    found = section(LANGUAGES[name].title, PAGE.read_text())
    assert sorted(found.files) == sorted(file.name for file in (SDKS / name).iterdir() if file.is_file())
    copying, *others = commands_in(Path(f"shop-{name}"), found.commands)
    assert copying == f'cp "$SHAREQUEUE"/sdks/{name}/* .'
    assert sum('"$SHAREQUEUE_URL/openapi' in command for command in others) == 1
    assert found.saved_as.lower().startswith("main.")
    assert found.program.count("SHAREQUEUE_URL") == 1
    assert found.printed.startswith("book, attempt 1\nlamp, attempt 1\nvase, attempt 1\nghost, attempt 1\n")


@pytest.mark.parametrize("name", LANGUAGES)
def test_each_language_has_a_topic_and_groups_of_its_own(name: str) -> None:
    found = section(LANGUAGES[name].title, PAGE.read_text(), name)
    assert found.program.count(f'"orders-{name}"') == found.program.count(f'"billing-{name}"') + 1
    assert f"/topics/dlq.billing-{name}/partitions" in found.running
    assert f'"orders-{name}"' in found.printed
    assert f"/v1/share-groups/billing-{name}/config" in begin(PAGE.read_text(), name)
    for text in (found.program, found.running, found.printed):
        assert '"orders"' not in text
        assert not re.search(r"billing\b(?!-)", text)


def test_each_other_generator_has_a_command() -> None:
    commands = commands_in(Path("shop-others"), others(PAGE.read_text()))
    made = [found[1] for command in commands if (found := re.search(r" (?:-o|--output-path) (\S+)$", command))]
    assert made == ["python", "typescript", "typescript-fetch", "go", "csharp", "php", "rust"]


def test_the_page_counts_the_cases_and_each_has_a_name_of_its_own() -> None:
    names = [case["id"] for case in json.loads(CASES.read_text())]
    assert len(set(names)) == len(names)
    assert re.findall(r"\]\(\.\./tests/sdks/cases\.json\) of (\d+) cases", PAGE.read_text()) == [str(len(names))]


@pytest.mark.parametrize("name", LANGUAGES)
def test_code_between_the_blocks_is_in_a_program_that_runs(name: str) -> None:
    """As it stands on the page, so that a compiler and a stack have seen it."""
    page, language = PAGE.read_text(), LANGUAGES[name]
    program = section(language.title, page).program
    sources = [program, *((CONTRACT / file).read_text() for file in language.suite_files)]
    shown = [code for title, code in code_between_blocks(page) if title == language.title and code not in NO_CODE]
    assert len(shown) > 10  # the tables alone have so many
    assert [code for code in shown if not any(holds(source, code) for source in sources)] == []


def test_commands_between_the_blocks_are_run() -> None:
    """Options of `make up`: tests/core/test_documentation.py."""
    page = PAGE.read_text()
    titles = {language.title for language in LANGUAGES.values()}
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    run = [content for kind, content in blocks if kind in ("", "sh")]
    commands = "\n".join([*run, *(language.compiled for language in LANGUAGES.values()), creating(page, "")])
    shown = [code for title, code in code_between_blocks(page) if title not in titles and code not in NO_CODE]
    assert len(shown) > 3
    assert [code for code in shown if "ARGS=" not in code and not holds(commands, code)] == []
