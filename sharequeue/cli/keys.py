"""`sharequeue keys`: keys of callers, through a gateway or in the database itself."""

import os
from typing import Final

import click

from sharequeue.access_store import new_key, store_key
from sharequeue.cli.access import Place, in_place, message
from sharequeue.cli.commands import Commands
from sharequeue.cli.output import Columns, echo_json, length_ms, moment_ms, say, shown_ms
from sharequeue.clock import Clock
from sharequeue.protocol import apis
from sharequeue.protocol.access.keys import KEY_ID, parse_key
from sharequeue.protocol.messages import access as messages
from sharequeue.protocol.types import MAX_PAGE_SIZE
from sharequeue_http.forms.api import Api

COLUMNS: Final[Columns] = {
    "KEY-ID": "key_id",
    "PRINCIPAL": "principal",
    "CREATED": lambda key: shown_ms(key.created_at_ms),
    "EXPIRES": lambda key: shown_ms(key.expires_at_ms),
    "REVOKED": lambda key: shown_ms(key.revoked_at_ms),
    "LAST-USED": lambda key: shown_ms(key.last_used_at_ms),
    "DESCRIPTION": "description",
}


@click.group(cls=Commands)
def keys() -> None:
    """Make, list, change and revoke the keys by which callers are known."""


def _ends_at_ms(expires_in: str | None) -> int | None:
    return None if expires_in is None else Clock().now_ms() + length_ms(expires_in, "--expires-in")


def _key_id(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    if text is not None and not KEY_ID.fullmatch(text):  # it may be a whole key, so it is not repeated
        raise click.BadParameter("must be the 16 characters after `sq_` of a key, as `keys list` shows them")
    return text


expires_option = click.option("--expires-in", metavar="LENGTH", help="when the key ends: 90d, 24h; default: never")


@keys.command()
@click.option("--principal", required=True, metavar="User:NAME", help="whom the key names")
@expires_option
@click.option("--description", default="", help="what the key is for")
@click.option(
    "--from-env",
    "variable",
    metavar="NAME",
    help="with --database-url: store the key that this environment variable has, once, and print its id",
)
@in_place
async def create(principal: str, expires_in: str | None, description: str, variable: str | None, place: Place) -> None:
    """Make a key and print it. It is not stored as it is, so nobody can show it again."""
    request = message(
        messages.CreateKeyRequest, principal=principal, expires_at_ms=_ends_at_ms(expires_in), description=description
    )
    if variable is None:
        await _make(place, apis.CREATE_KEY, request)
        return
    if place.database_url is None:
        raise click.UsageError("--from-env needs --database-url")
    key = parse_key(os.environ.get(variable, ""))
    if key is None:
        raise click.UsageError(f"the environment variable {variable} has no key; `sharequeue keys generate` prints one")
    stored: messages.KeyDescription = await place.in_database(store_key, key, request)
    if place.as_json:
        echo_json(stored)
    else:
        click.echo(stored.key_id)


@keys.command()
def generate() -> None:
    """Print a fresh key, and store nothing: put it where a deployment has its secrets, for `create --from-env`."""
    click.echo(new_key().text)


async def _make(place: Place, api: Api, request: object, **path: str) -> None:
    created: messages.CreatedKey | None = await place.answered(api, request, **path)
    if created is not None:
        click.echo(created.key)
        say(f"the key {created.key_id} of {created.principal}: keep it, it is not shown again")
        say("a gateway with authentication=off, the default of `sharequeue up`, serves callers without a key too")


@keys.command("list")
@click.option("--principal", metavar="User:NAME", help="the keys of this principal alone")
@in_place
async def list_keys(principal: str | None, place: Place) -> None:
    """List keys, without what would let anybody use them."""
    query = message(messages.ListKeysQuery, principal=principal, page_size=MAX_PAGE_SIZE)
    found = await place.items("keys", apis.LIST_KEYS, query)
    place.show(messages.KeyList(keys=found), COLUMNS, found)


@keys.command()
@click.argument("key_id", required=False, callback=_key_id)
@click.option("--all-before", metavar="TIME", help="each key made before a time: 2026-11-21T08:00")
@in_place
async def revoke(key_id: str | None, all_before: str | None, place: Place) -> None:
    """Revoke the key KEY_ID, or all keys made before a time. No gateway takes it 5 seconds later."""
    if (key_id is None) == (all_before is None):
        raise click.UsageError("name a KEY_ID or --all-before")
    if all_before is not None:
        request = message(messages.RevokeKeysRequest, made_before_ms=moment_ms(all_before, "--all-before"))
        if (many := await place.answered(apis.REVOKE_KEYS, request)) is not None:
            say(f"revoked {many.revoked_count} keys")
    elif (one := await place.answered(apis.REVOKE_KEY, key_id=key_id)) is not None:
        say(f"revoked the key {one.key_id} of {one.principal}")


@keys.command()
@click.argument("key_id", callback=_key_id)
@click.option("--overlap", default="24h", show_default=True, metavar="LENGTH", help="how long the old key still holds")
@expires_option
@in_place
async def rotate(key_id: str, overlap: str, expires_in: str | None, place: Place) -> None:
    """Make another key of the principal of KEY_ID, and print it. The old key ends after the overlap."""
    request = message(
        messages.RotateKeyRequest, overlap_ms=length_ms(overlap, "--overlap"), expires_at_ms=_ends_at_ms(expires_in)
    )
    await _make(place, apis.ROTATE_KEY, request, key_id=key_id)
