"""`sharequeue migrate`: the schemas of the services in PostgreSQL."""

import sys

import click
import msgspec

from sharequeue.cli.commands import complain
from sharequeue.cli.extras import extra
from sharequeue.cli.output import REFUSED, json_option
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
@json_option
def migrate(database_url: str, chains: tuple[str, ...], as_json: bool) -> None:
    """Bring the database schemas up to date. Exits with 1 if that fails.

    --json names the revision of each schema before and after; before is null if the schema was not there.
    """
    with extra("server", "migrate", as_json=as_json):
        from sharequeue.stack import checks  # noqa: PLC0415 - needs the extra, and takes long

    try:
        checks.check_postgres(database_url, "--url")
        upgraded = checks.migrate(database_url, chains or CHAINS)
    except checks.StoreError as fault:
        complain(str(fault), as_json=as_json, by="sharequeue migrate")
        sys.exit(REFUSED)
    click.echo(msgspec.json.encode({"schemas": upgraded}) if as_json else "schemas are up to date")
