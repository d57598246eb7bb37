"""Finds the place where `sharequeue keys` and `sharequeue acls` work: at a gateway, or with --database-url in the
database itself."""

import functools
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click
import msgspec

from sharequeue.access_store import act
from sharequeue.cli.commands import complain
from sharequeue.cli.extras import extra
from sharequeue.cli.output import REFUSED, Gateway, asks_gateway
from sharequeue_http.forms import mistakes
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.codec import encode

VARIABLE: Final = "DATABASE_URL"
M = TypeVar("M")


@dataclass(frozen=True)
class Place(Gateway):
    """The place where keys and rights are changed. `database_url`: None: through the gateway."""

    database_url: str | None = None

    async def ask(self, api: Api, request: Any = None, **path: Any) -> bytes:
        if self.database_url is None:
            return await super().ask(api, request, **path)
        return encode(await self.in_database(act, api, path, request))

    async def in_database(self, function: Any, *arguments: Any) -> Any:
        """Run a function of `sharequeue.access_store`, which works on the database itself. Raises: ApiError."""
        with extra("server", "--database-url", as_json=self.as_json):
            from sharequeue.stack import checks  # noqa: PLC0415 - needs the extra
        try:
            return await checks.in_database(str(self.database_url), function, *arguments)
        except checks.StoreError as fault:
            complain(str(fault), as_json=self.as_json)
            sys.exit(REFUSED)


def in_place(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Any]:
    """A command with --url, --database-url and --json, whose work gets them as a `Place`."""

    @functools.wraps(work)
    async def command(*arguments: Any, gateway: Gateway, database_url: str | None, **options: Any) -> None:
        if database_url in ("", VARIABLE) and not (database_url := os.environ.get(VARIABLE)):
            raise click.UsageError("--database-url without a value needs the environment variable DATABASE_URL")
        await work(*arguments, place=Place(gateway.url, gateway.as_json, database_url), **options)

    option = click.option(
        "--database-url",
        is_flag=False,
        flag_value=VARIABLE,
        metavar="[URL]",
        help="work on the database itself, not through the gateway; without a URL: DATABASE_URL has it",
    )
    return option(asks_gateway(command))


def message(kind: type[M], **members: Any) -> M:
    """A request with these members, those that are None left out. Raises: click.UsageError: one does not fit."""
    given = {name: value for name, value in members.items() if value is not None}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as fault:
        pointer, words = mistakes.unfit_body(fault, kind).pointers[0]
        raise click.UsageError(f"{pointer.rpartition('/')[2].replace('_', ' ')} {words}") from None
