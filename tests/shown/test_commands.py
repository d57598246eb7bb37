"""Each command that a page shows exists, with its options; the table of commands in client.md has each of them."""

import re
from pathlib import Path

import pytest

from sharequeue.cli import COMMANDS
from tests.shown import INLINE, PAGES, ROOT, Wrong
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


@pytest.mark.parametrize(
    "command",
    [
        "sharequeue topic",
        "sharequeue topics reed",
        "sharequeue groups in-flight GROUP --reason",
        "sharequeue groups config --set NAME=VALUE",
        "sharequeue groups reset-offsets GROUP --topic T --to-last --execute",
        "sharequeue groups creat GROUP --topic T",
        "sharequeue groups in-flight GROUP TOPIC",
        "sharequeue up --gateways three",
        "sharequeue pipeline redo GROUP",
        "sharequeue groups redrive GROUP --rat 5",
        ".venv/bin/sharequeue pipeline archive TOPIC --too DIRECTORY",
        "seq 3 | sharequeue produce numbers --jsonlines > /dev/null",
        "python -m bench.stat",
        "python -m bench.state memmory",
        "python -m bench.spark --round 2",
        ".venv/bin/python -m bench.memory 2",
    ],
)
def test_a_wrong_command_is_noticed(command: str) -> None:
    for page in (f"Call `{command}`.", f"```sh\n{command}\n```\n"):
        (words,) = shown(page)
        with pytest.raises(Wrong):
            check(words)


def test_only_commands_of_ours_are_found_and_all_their_words() -> None:
    block = "sharequeue topics  # also create\nsharequeue topics create \\\n  a\njq . < sharequeue out"
    page = f"```sh\n{block}\n```\n`sharequeue\ntopics read a` by `sharequeue`, ``a ` b`` | `true | sharequeue produce 'a b' > c;`"
    assert list(shown(page)) == [
        ["sharequeue", *words]
        for words in (["topics"], ["topics", "create", "a"], ["topics", "read", "a"], ["produce", "a b"])
    ]
