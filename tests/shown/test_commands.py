"""Each command that a page shows exists, with its options; the table of commands in client.md has each of them. So do
the commands that /ui shows beside what it does."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sharequeue.cli import COMMANDS, main
from tests.shown import INLINE, PAGES, ROOT
from tests.shown.commands import check, options_of, shown, words_of


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_of_a_page_exists(page: Path) -> None:
    for words in shown(page.read_text()):
        check(words)


def rows() -> list[list[str]]:
    """The codes of each row in the table of commands of client.md."""
    table = (ROOT / "docs" / "client.md").read_text().partition("| command | does |")[2]
    return [[code for _, code in INLINE.findall(row)] for row in table.splitlines() if row.startswith("| `")]


@pytest.mark.parametrize("codes", rows(), ids=lambda codes: str(codes[0]))
def test_each_row_of_the_table_of_commands_names_commands_and_their_options(codes: list[str]) -> None:
    commands = [check(["sharequeue", *words_of(code)]) for code in codes if code.split()[0] in COMMANDS]
    options = {option for command in commands if command for option in options_of(command)}
    assert commands
    assert {option for code in codes for option in re.findall(r"(?<![\w-])--[a-z-]+", code)} <= options


def test_the_table_has_each_command() -> None:
    first = {words_of(code)[0] for codes in rows() for code in codes[:1]}
    assert first == {*COMMANDS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_installs_a_name_that_nobody_owns(page: Path) -> None:
    """Nothing is published: whoever takes the name at an index would be installed."""
    assert not re.findall(r"(?:pip3?|pipx|uv|npm|poetry) (?:install|add) (?:-\S+ )*['\"]?sharequeue", page.read_text())


def shown_by_ui() -> Iterator[str]:
    """The arguments of each call of `command` in the scripts of /ui, if it begins with a word."""
    for script in sorted((ROOT / "services/gateway/sharequeue_gateway/http/pages/ui").glob("*.js")):
        text = script.read_text()
        for found in re.finditer(r'\bcommand\((?=")', text):
            end, depth = found.end(), 1
            while depth:
                depth += {"(": 1, ")": -1}.get(text[end], 0)
                end += 1
            yield text[found.end() : end - 1]


@pytest.mark.parametrize("arguments", list(shown_by_ui()))
def test_each_command_of_ui_exists_with_its_options(arguments: str) -> None:
    """Words behind a value are arguments. Where a value chooses the command, it may be each one of its group."""
    command: click.Command = main
    leading = re.match(r'(?:"[a-z-]+",? ?)*', arguments)
    for word in re.findall('"([^"]+)"', leading[0] if leading else ""):
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None, word
        command = found
    assert {*re.findall('"(--[^"]+)"', arguments)} <= {*options_of(command)}
