"""`sharequeue migrate`: the schemas of the services in PostgreSQL."""

import os
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
@click.option(
    "--roles",
    "with_roles",
    is_flag=True,
    help="first make a role for each service, as its variable …_DATABASE_URL names it, which then owns its schema",
)
@json_option
def migrate(database_url: str, chains: tuple[str, ...], with_roles: bool, as_json: bool) -> None:
    """Bring the database schemas up to date. Exits with 1 if that fails.

    --json names the revision of each schema before and after; before is null if the schema was not there.
    """
    with extra("server", "migrate", as_json=as_json):
        from sharequeue.stack import checks, roles  # noqa: PLC0415 - needs the extra, and takes long
        from sharequeue.stack.migrate import upgrade  # noqa: PLC0415

    try:
        checks.check_postgres(database_url, "--url")
        if with_roles:
            urls = roles.owners(os.environ)
            roles.make_roles(database_url, urls)
            upgraded = [step for chain in chains or CHAINS for step in upgrade(urls[chain], (chain,))]
        else:
            upgraded = upgrade(database_url, chains or CHAINS)
    except checks.StoreError as fault:
        complain(str(fault), as_json=as_json, by="sharequeue migrate")
        sys.exit(REFUSED)
    click.echo(msgspec.json.encode({"schemas": upgraded}) if as_json else "schemas are up to date")
