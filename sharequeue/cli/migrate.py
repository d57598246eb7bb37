"""`sharequeue migrate`. A module of its own: what it imports takes long."""

import sys

import click

from sharequeue.stack import checks
from sharequeue.stack.migrate import CHAINS


@click.command()
@click.option(
    "--url",
    "database_url",
    required=True,
    envvar="DATABASE_URL",
    show_envvar=True,
    help="postgresql://user:password@host:port/database",
)
@click.option("--chain", "chains", multiple=True, type=click.Choice(CHAINS), help="only this schema; repeatable")
def migrate(database_url: str, chains: tuple[str, ...]) -> None:
    """Bring the database schemas up to date. Exits 1 when they cannot be."""
    try:
        checks.check_postgres(database_url, "--url")
        checks.migrate(database_url, chains or CHAINS)
    except checks.StoreError as fault:
        click.echo(f"sharequeue migrate: {fault}", err=True)
        sys.exit(1)
    click.echo("schemas are up to date")
