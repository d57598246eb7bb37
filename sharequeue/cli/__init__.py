"""The command line: `sharequeue up`, `produce`, `consume`, `topics`, `groups`, `migrate`, `healthcheck`."""

import click

from sharequeue import __version__
from sharequeue.cli import operate


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sharequeue")
def main() -> None:
    """Kafka share groups over plain HTTP."""


for command in (operate.up, operate.migrate, operate.healthcheck):
    main.add_command(command)
