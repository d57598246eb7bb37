"""The command line, `sharequeue COMMAND`: one module or package for each command, named as the command.

A command is a client of the gateway and decides nothing about records. Commands share `output.py` (calls, tables, exit
codes), `commands.py` (groups of commands, usage errors), `printing.py` (records on stdout) and `extras.py`. At import
they load no library beside the client's: `up`, `migrate` and `pipeline` import the rest when they run.
"""

import contextlib
import importlib
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from sharequeue import __version__
from sharequeue.cli.commands import INTERRUPTED, Commands, complain

COMMANDS: Final = (
    "up",
    "produce",
    "consume",
    "work",
    "topics",
    "groups",
    "scheduled",
    "schedules",
    "dead-letters",
    "records",
    "transactions",
    "call",
    "keys",
    "acls",
    "activity",
    "samples",
    "pipeline",
    "migrate",
    "healthcheck",
)
"""Names, in the order of the help. Each is a module or a package here, with a click command of the same name
(`_` for `-`), but for these."""
_SHORT: Final = ("scheduled", "schedules", "records", "transactions", "activity", "samples")
"""The commands of `short.py`."""


class Main(Commands):
    """Imports the module of a command when it is used, so that a command does not wait for the imports of others."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = "short" if name in _SHORT else name.replace("-", "_")
        home = importlib.import_module(f"sharequeue.cli.{module}")
        command: click.Command = home.command_of(name) if name in _SHORT else getattr(home, module)
        return command

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """As click does it. But with --json or --jsonl wrong usage is reported as JSON, and Ctrl-C exits with 130."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        arguments = list(sys.argv[1:] if args is None else args)
        if arguments[:1] == ["help"]:
            arguments = [*arguments[1:], "--help"]
        as_json = not {"--json", "--jsonl"}.isdisjoint(arguments)
        try:
            sys.exit(super().main(arguments, prog_name, complete_var, False, **extra))
        except click.UsageError as fault:
            if as_json:
                complain(fault.format_message(), as_json=True, code="WRONG_USAGE")
            else:
                fault.show()
            sys.exit(fault.exit_code)
        except click.ClickException as fault:
            fault.show()
            sys.exit(fault.exit_code)
        except OSError as fault:
            with contextlib.suppress(OSError):  # what is buffered cannot be written either, and Python would say so
                sys.stdout.close()
            what = "the output cannot be written" if fault.filename is None else fault.filename
            complain(f"{what}: {fault.strerror or fault}", as_json=as_json)
            sys.exit(1)
        except click.Abort as abort:
            if isinstance(abort.__cause__, KeyboardInterrupt):
                sys.exit(INTERRUPTED)
            click.echo("Aborted!", err=True)
            sys.exit(1)


@click.group(cls=Main, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="sharequeue")
def main() -> None:
    """Kafka share groups over plain HTTP."""
