"""Groups of commands: help with whole sentences, a hint for a misspelt name, and messages of failures."""

import difflib
from typing import Final

import click
import msgspec

INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, if the work was not done. Shells expect it."""


class Commands(click.Group):
    """A group of commands. Its help shows whole sentences, and for an unknown command it names similar ones."""

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        if self.get_command(context, name) is None and not context.resilient_parsing and not name.startswith("-"):
            like = difflib.get_close_matches(name, self.list_commands(context))
            hint = f" Did you mean {' or '.join(map(repr, like))}?" if like else ""
            context.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(context, name)) for name in self.list_commands(context)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(limit=1000)) for name, command in commands if command]
            )


def complain(detail: str, *, as_json: bool, code: str = "FAILED", by: str = "sharequeue", **more: object) -> None:
    """Print a failure on stderr, as JSON or as a line. `by`: the command that failed. `more`: fields of the JSON."""
    if as_json:
        click.echo(msgspec.json.encode({"code": code, "detail": detail, **more}), err=True)
    else:
        click.echo(f"{by}: {detail}", err=True)
