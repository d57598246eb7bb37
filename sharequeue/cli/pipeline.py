"""`sharequeue pipeline JOB`: the jobs of the data pipeline, which come with the extra [spark]."""

import importlib
from typing import Final

import click

from sharequeue.cli.commands import Commands
from sharequeue.cli.extras import extra

JOBS: Final[dict[str, str]] = {
    "ingest": "Write the rows of Parquet, CSV or NDJSON files to a topic.",
    "archive": "Copy a topic to a Delta table, from where the last run ended.",
    "compact": "Keep the last record of each key of a topic.",
}
"""Names of jobs and their help. Each is a module of `sharequeue_pipeline.jobs` with a click command named `command`."""


class Jobs(Commands):
    """Imports a job when it is used: Spark takes a second to import, and may not be installed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in JOBS:
            return None
        with extra("spark", f"pipeline {name}"):
            module = importlib.import_module(f"sharequeue_pipeline.jobs.{name}")
        command: click.Command = module.command
        return command

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Without a job click prints the help. Without Spark the missing extra matters more."""
        if not args and not context.resilient_parsing:
            with extra("spark", "pipeline", "pyspark"):
                pass
        return super().parse_args(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Jobs"):
            formatter.write_dl(list(JOBS.items()))


@click.group(cls=Jobs)
def pipeline() -> None:
    """Move data of any size, with Spark."""
