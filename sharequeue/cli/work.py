"""`sharequeue work`: run the tasks of an app, in one process or several."""

import importlib
import logging
import os
import sys
from typing import Any

import click

from sharequeue.cli.login import variables
from sharequeue.cli.output import say


class _Span(click.ParamType[float]):
    name = "span"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        from sharequeue.worker.spans import seconds  # noqa: PLC0415 -- the help of other commands does without

        try:
            return seconds(float(value) if str(value).replace(".", "", 1).isdigit() else value)
        except ValueError as fault:
            self.fail(str(fault), parameter, context)


@click.command()
@click.argument("target", metavar="MODULE:APP")
@click.option("--processes", "-p", type=click.IntRange(1, 256), default=1, show_default=True, help="start so many")
@click.option("--grace", type=_Span(), default="30s", show_default=True, help="on SIGTERM, wait so long for what runs")
@click.option(
    "--health-port", type=click.IntRange(1, 65535), help="serve /livez and /metrics there; the next process one above"
)
@click.option("--url", envvar="SHAREQUEUE_URL", help="the gateways in place of the app's own, separated by commas")
def work(target: str, processes: int, grace: float, health_port: int | None, url: str | None) -> None:
    """Run the tasks of an app: MODULE:APP names a sharequeue.worker.Worker, as shop.tasks:app.

    SIGTERM and Ctrl-C stop it: what no function has begun goes back at once, uncounted. What still runs at the end of
    the grace is released. A second signal ends the grace. A process that dies is started again.

    Exit codes: 0 stopped, 1 every process died within 10 seconds of its start, or a schedule was refused, 2 wrong
    usage, 3 payloads do not fit, 4 half of a task's functions hang.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    if processes > 1:
        from sharequeue.worker.supervisor import supervise  # noqa: PLC0415

        same = [target, "--grace", f"{grace}s", *(("--url", url) if url else ())]
        ports = [[] if health_port is None else ["--health-port", str(health_port + n)] for n in range(processes)]
        sys.exit(supervise([[*same, *port] for port in ports]))
    from sharequeue.worker.process import run  # noqa: PLC0415

    app = _app(target)
    gateways = app.gateways
    if url:
        gateways.urls = url.split(",")
    found = variables().options
    gateways.login = {**gateways.login, **{name: value for name, value in found.items() if value is not None}}
    say(f"tasks: {', '.join(app.tasks)}")
    sys.exit(run(app, grace_s=grace, health_port=health_port))


def _app(target: str) -> Any:
    """Import an app. Raises: click.UsageError: there is none."""
    from sharequeue.worker import Worker  # noqa: PLC0415

    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise click.UsageError(f"{target!r} is not of the form MODULE:APP, such as shop.tasks:app")
    sys.path.insert(0, os.getcwd())
    try:
        app = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as fault:
        raise click.UsageError(f"{fault}; looked in {os.getcwd()} and where Python looks") from None
    except AttributeError:
        raise click.UsageError(f"{module} has no {name}") from None
    if not isinstance(app, Worker):
        raise click.UsageError(f"{target} is no sharequeue.worker.Worker")
    if not app.tasks:
        raise click.UsageError(f"{target} has no task")
    return app
