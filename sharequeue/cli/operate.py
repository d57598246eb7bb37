"""Commands that run things: the stack, the migrations, a health check."""

import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import FrameType

import click

from sharequeue.migrate import CHAINS
from sharequeue.migrate import upgrade as upgrade_schemas
from sharequeue.stack import Stack, StackError


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path), default=Path(".sharequeue"), show_default=True)
@click.option("--gateway-port", type=int, default=8080, show_default=True, help="0 takes a free port")
@click.option("--coordinator-port", type=int, default=8081, show_default=True, help="0 takes a free port")
@click.option("--share-coordinator-port", type=int, default=8082, show_default=True, help="0 takes a free port")
@click.option("--postgres-url", help="your PostgreSQL in the place of the embedded one: postgresql://…")
@click.option("--redis-url", help="your Redis in the place of the embedded one: redis://…")
def up(
    data_dir: Path,
    gateway_port: int,
    coordinator_port: int,
    share_coordinator_port: int,
    postgres_url: str | None,
    redis_url: str | None,
) -> None:
    """Run the whole stack on this machine until Ctrl-C. Data stays in --data-dir."""
    stack = Stack(
        data_dir,
        gateway_port=gateway_port,
        coordinator_port=coordinator_port,
        share_coordinator_port=share_coordinator_port,
        postgres_url=postgres_url,
        redis_url=redis_url,
    )

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    try:
        url = stack.start()
        if stack.postgres is not None and data_dir.absolute() not in stack.postgres.home.parents:
            click.echo(f"PostgreSQL's data is in {stack.postgres.home}", err=True)
        click.echo(f"ready: {url}")
        sys.stdout.flush()
        while True:
            time.sleep(0.3)
            stack.check()
    except StackError as fault:
        click.echo(f"sharequeue up: {fault}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        click.echo("stopping", err=True)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stack.stop()


@click.command()
@click.option("--url", "database_url", required=True, help="postgresql://user:password@host:port/database")
@click.option("--chain", "chains", multiple=True, type=click.Choice(CHAINS), help="only this schema; repeatable")
def migrate(database_url: str, chains: tuple[str, ...]) -> None:
    """Bring the database schemas up to date."""
    upgrade_schemas(database_url, chains or CHAINS)
    click.echo("schemas are up to date")


@click.command()
@click.argument("url")
def healthcheck(url: str) -> None:
    """Exit 0 if URL (a service's /readyz) answers that it can work, 1 otherwise."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            click.echo(response.read().decode())
    except urllib.error.HTTPError as fault:
        click.echo(fault.read().decode(), err=True)
        sys.exit(1)
    except OSError as fault:
        click.echo(f"{url}: {fault}", err=True)
        sys.exit(1)
