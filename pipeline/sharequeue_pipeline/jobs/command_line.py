"""The common part of the jobs' commands: options, the Spark session, and faults as one line and an exit code.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 the gateway cannot be reached.
"""

import functools
import json
import re
import sys
from collections.abc import Callable
from typing import Any, Final, ParamSpec

import click
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sharequeue.cli.login import variables
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.jobs.quiet_java import quiet_java
from sharequeue_pipeline.options import DEFAULT_URL, GatewayOptions
from sharequeue_pipeline.spark_session import session

FAILED: Final = 1
UNREACHABLE: Final = 3
QUIET: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}
_OURS: Final = re.compile(r"sharequeue\.PipelineError: ([^\n]+)|\[PipelineError\] ([^\n]+)|PipelineError: ([^\n]+)")
_RAISED: Final = re.compile(r"^[\w.]+(?:Error|Exception|Warning): .+$", re.MULTILINE)
_AWAY: Final = re.compile(r"cannot reach |did not answer|was lost: ")

P = ParamSpec("P")
Command = Callable[..., Any]


def job_options(command: Command) -> Command:
    """--master, --json, --url, --timeout: `master`, `as_json`, and the arguments of `gateway_at`."""
    for option in (
        click.option(
            "--timeout",
            "timeout_s",
            type=click.IntRange(1),
            default=120,
            show_default=True,
            help="seconds that the gateway may be out of reach",
        ),
        click.option(
            "--url", envvar="SHAREQUEUE_URL", default=DEFAULT_URL, show_default=True, show_envvar=True, help="gateway"
        ),
        click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for machines"),
        click.option("--master", help="Spark's master, like local[4]; default: spark-submit's, otherwise local[*]"),
    ):
        command = option(command)
    return command


def gateway_at(url: str, timeout_s: int) -> GatewayOptions:
    """The gateway, with the token and the authority that the environment names. Raises: click.UsageError."""
    return GatewayOptions(url=url.rstrip("/"), **variables()._asdict(), timeout_ms=timeout_s * 1000)


def start(job: str, master: str | None) -> SparkSession:
    """The session of a job. Raises: PipelineError: there is no Java."""
    with quiet_java():
        return session(f"sharequeue {job}", master=master, config=QUIET)


def echo_json(document: Any) -> None:
    click.echo(json.dumps(document, separators=(",", ":"), ensure_ascii=False))


def say(text: str) -> None:
    click.echo(text, err=True)


def job(work: Callable[P, None]) -> Callable[P, None]:
    """Make a command of a job's function: a fault becomes one line on stderr and an exit code."""

    @functools.wraps(work)
    def command(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            work(*arguments, **options)
        except PipelineError as fault:
            sys.exit(_explain(str(fault)))
        except (PySparkException, Py4JError) as fault:
            sys.exit(_explain(_line_of(str(fault))))

    return command


def _explain(text: str) -> int:
    """Print a fault to stderr. Returns: the exit code."""
    say(f"sharequeue: {text}")
    return UNREACHABLE if _AWAY.search(text) else FAILED


def _line_of(text: str) -> str:
    """One line of Spark's error: the text of a PipelineError, else the last error raised, else the first line."""
    ours = _OURS.search(text)
    if ours is not None:
        return next(part for part in ours.groups() if part)
    raised = _RAISED.findall(text)
    if raised:
        return str(raised[-1])
    return next((line.strip() for line in text.splitlines() if line.strip()), "Spark failed")
