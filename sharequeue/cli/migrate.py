"""`sharequeue migrate`: the schemas of the services in PostgreSQL."""

import sys

import click

from sharequeue.cli.extras import extra
from sharequeue.cli.output import REFUSED
from sharequeue.stack.chains import CHAINS


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
    """Bring the database schemas up to date. Exits with 1 if that fails."""
    with extra("server", "migrate"):
        from sharequeue.stack import checks  # noqa: PLC0415 - needs the extra, and takes long

    try:
        checks.check_postgres(database_url, "--url")
        checks.migrate(database_url, chains or CHAINS)
    except checks.StoreError as fault:
        click.echo(f"sharequeue migrate: {fault}", err=True)
        sys.exit(REFUSED)
    click.echo("schemas are up to date")
