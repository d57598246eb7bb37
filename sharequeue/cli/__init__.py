"""The command line: `sharequeue up`, `produce`, `consume`, `topics`, `groups`, `pipeline`, `migrate`, `healthcheck`, `completion`."""

import importlib
from typing import Final

import click

from sharequeue import __version__

MODULES: Final = {
    "up": "operate",
    "produce": "producing",
    "consume": "consuming",
    "topics": "topics",
    "groups": "groups",
    "pipeline": "pipeline",
    "migrate": "migrating",
    "healthcheck": "operate",
    "completion": "completing",
}


class Commands(click.Group):
    """Imports a command's module when the command is asked for: `produce` need not wait for what `migrate` imports."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in MODULES:
            return None
        command: click.Command = getattr(importlib.import_module(f"sharequeue.cli.{MODULES[name]}"), name)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sharequeue")
def main() -> None:
    """Kafka share groups over plain HTTP."""
