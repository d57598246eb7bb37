"""Commands of ours: `sharequeue …`, the forms in the tables of client.md, and `python -m bench.…`.

click's own parser decides. A value in capitals (`GROUP`, `NAME=VALUE`), or with `…` or `$`, is the reader's; any other
must be one that its option takes. A command without words behind it (`sharequeue topics create`) is a name; with words
it must have all that it needs.
"""

import importlib
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec

import click

from sharequeue.cli import main
from sharequeue.cli.call import CALLS, request_of
from sharequeue.cli.short import Short
from tests.shown import Wrong, pieces


class Lacks(Wrong):
    """A command is not complete."""


PROGRAM = re.compile(r"(?:\S*/)?sharequeue\s|(?:\S*/)?python3? -m bench\b")
OF_THE_READER = re.compile(r"[A-Z]+(?:=[A-Z]+|[:,][0-9,…]+)?|.*[…$].*")


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
    lacking: list[str] = []
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
                lacking.append(parameter.human_readable_name)
            for value in values:
                if not OF_THE_READER.fullmatch(value):
                    parameter.type(value, parameter, context)
        if lacking:
            raise Lacks(f"{context.command_path} needs {lacking[0]}")
        if command.name == "call" and words and words[0] in CALLS:
            request_of(CALLS[words[0]], words[1:])
        if isinstance(command, Short) and words:
            more = given["members"] if isinstance(given["members"], (list, tuple)) else []
            arguments = {str(each.name): given[str(each.name)] for each in command.params if each.required}
            if not any(OF_THE_READER.fullmatch(each) for each in more):
                request_of(command.api, command.members(more, arguments))
    except click.UsageError as fault:
        raise Wrong(f"{context.command_path}: {fault.format_message()}") from fault
    return command


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
