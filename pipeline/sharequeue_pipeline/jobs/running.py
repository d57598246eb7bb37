"""What every job shares: the options of the gateway and of Spark, one line for each fault, exit codes.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 the gateway cannot be reached.
"""

import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click
import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sharequeue.cli.output import REFUSED, UNREACHABLE, json_option, key_values, say, show_table, url_option
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import Connection, source_options
from sharequeue_pipeline.session import session

QUIET: Final[Mapping[str, str]] = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_OURS: Final = re.compile(r"sharequeue\.PipelineError: (.*)")
_SPARKS_OWN: Final = re.compile(r"^(?:An error occurred while calling \S+\s*|: ?)|SQLSTATE: \w+$")


@dataclass(frozen=True)
class Place:
    """Where a job runs: the gateway, and Spark."""

    connection: Connection
    master: str | None
    config: Mapping[str, str]
    as_json: bool

    def spark(self, job: str) -> SparkSession:
        """The session of the job."""
        return session(f"sharequeue {job}", self.master, {**QUIET, **self.config})

    @property
    def options(self) -> dict[str, str]:
        """The connection as options of the source and the sink."""
        token = {} if self.connection.token is None else {"token": self.connection.token}
        return {"url": self.connection.url, "timeoutMs": str(self.connection.timeout_ms), **token}


def job(work: Callable[..., Any]) -> Callable[..., Any]:
    """Give a job the shared options, as its first argument `place`, and say what goes wrong in one line."""

    @click.option("--token", envvar="SHAREQUEUE_TOKEN", show_envvar=True, help="bearer token for the gateway")
    @click.option(
        "--timeout-ms",
        type=click.IntRange(1),
        default=120_000,
        show_default=True,
        help="for all tries of one call: how long a gateway may be away",
    )
    @click.option("--master", help="where Spark runs, e.g. local[4]; else what spark-submit says, else local[*]")
    @click.option("--spark-conf", multiple=True, metavar="NAME=VALUE", help="a setting of Spark; repeatable")
    @json_option
    @url_option
    @functools.wraps(work)
    def command(
        url: str,
        as_json: bool,
        spark_conf: Sequence[str],
        master: str | None,
        timeout_ms: int,
        token: str | None,
        **options: Any,
    ) -> None:
        config = key_values(spark_conf, "--spark-conf")
        try:
            given = {"url": url, "timeoutMs": str(timeout_ms), **({"token": token} if token else {})}
            connection = source_options({**given, "topics": "-"}).connection
            work(Place(connection, master, config, as_json), **options)
        except (PipelineError, PySparkException, Py4JError) as fault:
            say(f"sharequeue: {line_of(fault)}")
            sys.exit(UNREACHABLE if getattr(fault, "unreachable", False) else REFUSED)

    return command


def line_of(fault: BaseException) -> str:
    """What went wrong in one line: ours where Spark wraps it, else the first line that says something."""
    text = str(fault)
    ours = _OURS.search(text)
    if ours:
        return ours[1].strip()
    lines = (_SPARKS_OWN.sub("", line).strip() for line in text.splitlines())
    return next((line for line in lines if line), type(fault).__name__)


def tell(place: Place, report: Mapping[str, Any], columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """What a job did, on stdout: the report as JSON, or a table for people."""
    if place.as_json:
        click.echo(msgspec.json.encode(report))
        return
    show_table(columns, rows)
