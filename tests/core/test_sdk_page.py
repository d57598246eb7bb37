"""docs/sdks.md as `make sdks` reads it: for each language the files to copy, one block of commands, one program."""

import json
import re
from pathlib import Path

import pytest

from sdks.__main__ import CASES, CONTRACT, HERE, LANGUAGES
from sdks.page import PAGE, begin, commands_in, matches, others, section


@pytest.mark.parametrize("name", LANGUAGES)
def test_each_language_has_files_commands_and_a_program(name: str) -> None:
    found = section(LANGUAGES[name].title, PAGE.read_text())
    assert sorted(found.files) == sorted(file.name for file in (HERE / name).iterdir() if file.is_file())
    assert (CONTRACT / LANGUAGES[name].suite_file).is_file()
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


def test_a_section_with_another_block_is_refused() -> None:
    page = PAGE.read_text().replace("## Python\n", "## Python\n\n```\npip install more\n```\n", 1)
    with pytest.raises(ValueError, match="not commands, program, commands, text"):
        section("Python", page)


def test_a_section_that_begins_in_another_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="do not make the folder shop-go"):
        commands_in(Path("shop-go"), section("Python", PAGE.read_text()).commands)


def test_each_other_generator_has_a_command() -> None:
    commands = commands_in(Path("shop-others"), others(PAGE.read_text()))
    made = [found[1] for command in commands if (found := re.search(r" (?:-o|--output-path) (\S+)$", command))]
    assert made == ["python", "typescript", "typescript-fetch", "go", "csharp", "php", "rust"]


def test_what_a_program_prints_is_compared_line_by_line() -> None:
    assert matches('a\n{"timestamp_ms":…}\n', 'compiling\na\n{"timestamp_ms":17}\n')
    assert not matches("a\n…b\n", "a\nc\nb\n")
    assert not matches("a\n", "a\nmore\n")


def test_the_page_counts_the_cases_and_each_has_a_name_of_its_own() -> None:
    names = [case["id"] for case in json.loads(CASES.read_text())]
    assert len(set(names)) == len(names)
    assert re.findall(r"\]\(\.\./sdks/cases\.json\) of (\d+) cases", PAGE.read_text()) == [str(len(names))]
