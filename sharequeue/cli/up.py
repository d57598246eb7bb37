"""`sharequeue up`: the whole stack on this machine."""

import itertools
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from sharequeue.cli.commands import complain
from sharequeue.cli.extras import SERVER, extra
from sharequeue.cli.output import REFUSED, json_option

if TYPE_CHECKING:
    from sharequeue.stack.stack import Stack

PORT: Final = click.IntRange(0, 65535)
LOOKS_PER_ROTATION: Final = 100
"""Every half minute the logs are looked at."""
COUNT: Final = click.IntRange(1, 64)


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path), default=Path(".sharequeue"), show_default=True)
@click.option("--gateway-port", type=PORT, default=8080, show_default=True, help="0 takes a free port")
@click.option("--coordinator-port", type=PORT, default=8081, show_default=True, help="0 takes a free port")
@click.option("--share-coordinator-port", type=PORT, default=8082, show_default=True, help="0 takes a free port")
@click.option("--gateways", type=COUNT, default=1, show_default=True, help="further gateways take free ports")
@click.option(
    "--coordinators", type=COUNT, default=1, show_default=True, help="group coordinators; further ones take free ports"
)
@click.option("--share-coordinators", type=COUNT, default=1, show_default=True, help="further ones take free ports")
@click.option("--separate", is_flag=True, help="run each service in a process of its own, as several gateways do")
@click.option("--require-keys", is_flag=True, help="callers need keys; the first one is in DATA-DIR/admin.key")
@click.option(
    "--secure", is_flag=True, help="--require-keys, and https with an authority of its own, DATA-DIR/tls/ca.pem"
)
@click.option("--postgres-url", help="use this PostgreSQL, not the embedded one: postgresql://…")
@click.option("--redis-url", help="use this Redis, not the embedded one: redis://…")
@click.option(
    "--record-log",
    type=click.Choice(["postgres", "kafka"]),
    default="postgres",
    show_default=True,
    help="where the records are; kafka needs --kafka",
)
@click.option("--kafka", metavar="HOST:PORT", help="brokers of the cluster whose topics are used, separated by commas")
@json_option
def up(
    data_dir: Path,
    gateways: int,
    coordinators: int,
    share_coordinators: int,
    separate: bool,
    record_log: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Run the whole stack on this machine until Ctrl-C. Data stays in --data-dir.

    One process runs the three services; with --separate or several of a kind, each has its own. A part that dies is
    started again, a second later at first and half a minute later at most.

    --json prints one object on one line when all services are ready: their addresses, the directories of the data and
    of the logs, and the process that a SIGTERM stops. Exit codes: 0 after Ctrl-C or SIGTERM; 1 when it cannot start.
    """
    if (record_log == "kafka") != (options["kafka"] is not None):
        raise click.UsageError("give --record-log kafka and --kafka HOST:PORT, or neither")
    own_store = options["postgres_url"] is None or options["redis_url"] is None
    with extra("up" if own_store else "server", "up", *SERVER, as_json=as_json):
        from sharequeue.service.kafka_settings import LIBRARIES  # noqa: PLC0415
        from sharequeue.stack.stack import Stack, StackError  # noqa: PLC0415 - not on every system
    if record_log == "kafka":
        with extra("kafka", "up", *LIBRARIES, as_json=as_json):
            pass

    stack = Stack(
        data_dir,
        gateways=gateways,
        coordinators=coordinators,
        share_coordinators=share_coordinators,
        one_process=not separate and gateways == coordinators == share_coordinators == 1,
        tell=lambda sentence: click.echo(sentence, err=True),
        **options,
    )
    end = _End()
    try:
        stack.start()
        _say_ready(stack, data_dir.absolute(), as_json=as_json)
        for looks in itertools.count():
            if end.asked_for:  # Python drops an exception that the handler raises in a finalizer
                raise KeyboardInterrupt
            time.sleep(0.3)
            stack.keep_up()
            if looks % LOOKS_PER_ROTATION == 0:
                stack.rotate_logs()
    except StackError as fault:
        complain(str(fault), as_json=as_json, by="sharequeue up")
        sys.exit(REFUSED)
    except KeyboardInterrupt:
        click.echo("stopping", err=True)
    finally:
        end.ignore_signals()
        stack.stop()


class _End:
    """Raises KeyboardInterrupt at the first signal that ends the command. A second one would interrupt the stop."""

    def __init__(self) -> None:
        self.asked_for = False
        outlives = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # under nohup it outlives the terminal
        self._signals = [signal.SIGTERM, signal.SIGINT, *([] if outlives else [signal.SIGHUP])]
        for number in self._signals:
            signal.signal(number, self._interrupt)

    def ignore_signals(self) -> None:
        for number in self._signals:
            signal.signal(number, signal.SIG_IGN)

    def _interrupt(self, _: int, __: FrameType | None) -> None:
        if not self.asked_for:
            self.asked_for = True
            raise KeyboardInterrupt


def _say_ready(stack: "Stack", data_dir: Path, *, as_json: bool) -> None:
    """Print where the services are, at once: a program may wait for this line."""
    if as_json:
        click.echo(msgspec.json.encode(_running(stack, data_dir)))
    else:
        if stack.postgres is not None and data_dir not in stack.postgres.home.parents:
            click.echo(f"PostgreSQL's data is in {stack.postgres.home}", err=True)
        click.echo(f"logs are in {stack.logs}", err=True)
        if stack.admin_key is not None:
            https = "" if stack.ca is None else f" SHAREQUEUE_CA={stack.ca} SHAREQUEUE_URL={stack.url}"
            click.echo(f"callers need keys: export SHAREQUEUE_TOKEN_FILE={stack.admin_key}{https}", err=True)
        click.echo(f"ready: {' '.join(stack.urls)}")
    sys.stdout.flush()


def _running(stack: "Stack", data_dir: Path) -> dict[str, Any]:
    """Return what --json prints of a stack that is ready. `postgresql_data` is None if the user gave --postgres-url."""

    def urls(kind: str) -> list[str]:
        return [url for name, url in stack.addresses.items() if name.startswith(kind)]

    return {
        "gateways": urls("gateway"),
        "coordinators": urls("group coordinator"),
        "share_coordinators": urls("share coordinator"),
        "data_dir": str(data_dir),
        "postgresql_data": None if stack.postgres is None else str(stack.postgres.home),
        "logs": str(stack.logs),
        "pid": os.getpid(),
    }
