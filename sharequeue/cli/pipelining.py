"""`sharequeue pipeline JOB`: the jobs of the data pipeline on Spark, each imported when it is asked for.

A job is the click command `command` of a module in `sharequeue_pipeline.jobs`, which needs the extra [spark].
"""

import importlib
from typing import Final

import click

JOBS: Final = {
    "ingest": "Write Parquet, CSV or NDJSON files to a topic.",
    "archive": "Copy a topic to Parquet, from where the last run ended.",
    "compact": "Keep the last record of each key of a topic.",
}


class Jobs(click.Group):
    """The jobs by name; without pyspark they are listed all the same."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(JOBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in JOBS:
            return None
        try:
            command: click.Command = importlib.import_module(f"sharequeue_pipeline.jobs.{name}").command
        except ModuleNotFoundError as missing:
            return _without(name, missing.name)
        return command


def _without(name: str, package: str | None) -> click.Command:
    """Stands for a job that cannot run here."""

    def refuse() -> None:
        raise click.ClickException(f"the pipeline needs the package {package}: install sharequeue[spark]")

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, callback=refuse, short_help=JOBS[name], context_settings=anything)


@click.group(cls=Jobs, context_settings={"help_option_names": ["-h", "--help"]})
def pipeline() -> None:
    """Run a job of the data pipeline on Spark."""
