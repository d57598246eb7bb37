"""Each command that a page shows exists, with its options: `sharequeue …`, the forms in the tables of client.md, and
`python -m bench.…`.

click's own parser decides. A value in capitals (`GROUP`, `NAME=VALUE`), or with `…` or `$`, is the reader's; any other
must be one that its option takes. A command without words behind it (`sharequeue topics create`) is a name; with words
it must have all that it needs.
"""

import importlib
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from sharequeue.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
PROGRAM = re.compile(r"(?:\S*/)?sharequeue\s|(?:\S*/)?python3? -m bench\b")
OF_THE_READER = re.compile(r"[A-Z]+(?:=[A-Z]+|[:,][0-9,…]+)?|.*[…$].*")
OPTIONS_OF_OTHERS = {"--enable-optimizations", "--http2", "--py-files", "--scale", "--volumes"}
"""Of Python's build, curl, Spark, and Docker."""


class Wrong(Exception):
    """A command is not as it is shown."""


def pieces(text: str) -> Iterator[str]:
    """What a page shows as code: the lines of its blocks of commands, and the code within its sentences."""
    for language, block in BLOCK.findall(text):
        if language in ("", "sh"):
            yield from block.replace("\\\n", " ").splitlines()
    yield from (" ".join(code.split()) for _, code in INLINE.findall(BLOCK.sub("", text)))


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a shell's line, without what is redirected."""
    lexer = shlex.shlex(re.sub(r'"\$\((.*?)\)"', r"$(\1)", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    skipped = False
    for word in [*lexer, ";"]:
        if not set(word) - set("();|&"):
            yield words
            words = []
        elif not skipped and set(word) - set("<>&"):
            words.append(word)
        skipped = not set(word) - set("<>&")


def shown(text: str) -> Iterator[list[str]]:
    """The words of each command of ours in a page. The first is `sharequeue` or `python`."""
    for piece in pieces(text):
        if PROGRAM.search(piece):
            for words in simple_commands(piece):
                if PROGRAM.match(" ".join([*words, ""])):
                    yield [words[0].rpartition("/")[2], *words[1:]]


def words_of(form: str) -> list[str]:
    """The words of a form such as `describe G… [--offsets, --members] [--verbose]`, with all that may stand there."""
    return [word.strip("[],") if "[:" not in word else word for word in form.split()]


def check(words: list[str]) -> click.Command | None:
    """Returns: the command, if click reads its options. Raises: Wrong."""
    if words[0] == "sharequeue":
        return parse(main, words[1:])
    module = words[2]
    found = find_spec(module)
    if found is None:
        raise Wrong(f"there is no {module}")
    program = importlib.import_module(f"{module}.__main__" if found.submodule_search_locations else module).main
    if isinstance(program, click.Command):
        return parse(program, words[3:])
    if words[3:]:
        raise Wrong(f"{module} takes no {words[3]}")
    return None


def parse(command: click.Command, words: list[str], above: click.Context | None = None) -> click.Command:
    """Returns: the command that the words name. Raises: Wrong."""
    context = click.Context(command, above, command.name)
    try:
        given, rest, _ = command.make_parser(context).parse_args(list(words))
        if isinstance(command, click.Group) and rest:
            inner = command.get_command(context, rest[0])
            if inner is not None:
                return parse(inner, rest[1:], context)
        if rest and not (isinstance(command, click.Group) and OF_THE_READER.fullmatch(rest[0])):
            raise Wrong(f"{context.command_path} takes no {rest[0]}")
        for parameter in command.get_params(context):
            found = given.get(str(parameter.name))
            values = [
                each for each in (found if isinstance(found, (list, tuple)) else [found]) if isinstance(each, str)
            ]
            if parameter.required and not (values or parameter.envvar or "help" in given) and words:
                raise Wrong(f"{context.command_path} needs {parameter.human_readable_name}")
            for value in values:
                if not OF_THE_READER.fullmatch(value):
                    parameter.type(value, parameter, context)
    except click.UsageError as fault:
        raise Wrong(f"{context.command_path}: {fault.format_message()}") from fault
    return command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_of_a_page_exists(page: Path) -> None:
    for words in shown(page.read_text()):
        check(words)


def rows() -> list[list[str]]:
    """The codes of each row in the table of commands of client.md."""
    table = (ROOT / "docs" / "client.md").read_text().partition("| command | does |")[2]
    return [[code for _, code in INLINE.findall(row)] for row in table.splitlines() if row.startswith("| `")]


def options_of(command: click.Command) -> Iterator[str]:
    """Its options and those of the commands below it."""
    for parameter in command.get_params(click.Context(command)):
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from options_of(inner)


@pytest.mark.parametrize("codes", rows(), ids=lambda codes: str(codes[0]))
def test_each_row_of_the_table_of_commands_names_commands_and_their_options(codes: list[str]) -> None:
    commands = [check(["sharequeue", *words_of(code)]) for code in codes if code.split()[0] in COMMANDS]
    options = {option for command in commands if command for option in options_of(command)}
    assert commands
    assert {option for code in codes for option in re.findall(r"(?<![\w-])--[a-z-]+", code)} <= options


def test_the_table_has_each_command() -> None:
    first = {words_of(code)[0] for codes in rows() for code in codes[:1]}
    assert first == {*COMMANDS}


def test_each_option_in_a_sentence_is_one_of_a_command() -> None:
    """Of any: the sentence says of which."""
    known = {*options_of(main), *OPTIONS_OF_OTHERS}
    for page in PAGES:
        named = {code.split()[0] for code in pieces(BLOCK.sub("", page.read_text())) if code.startswith("--")}
        assert named <= known, page.name


@pytest.mark.parametrize(
    "command",
    [
        "sharequeue topic",
        "sharequeue topics reed",
        "sharequeue groups in-flight GROUP --reason",
        "sharequeue groups config --set NAME=VALUE",
        "sharequeue groups create GROUP --topic T --from last",
        "sharequeue groups creat GROUP --topic T",
        "sharequeue groups offsets GROUP TOPIC",
        "sharequeue up --gateways three",
        "sharequeue pipeline redo GROUP",
        "sharequeue pipeline redrive GROUP --rat 5",
        ".venv/bin/sharequeue pipeline archive TOPIC --too DIRECTORY",
        'eval "$(sharequeue completion bush)"',
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
