"""`sharequeue call`: any call of the HTTP API by its name, with its answer as tables or as JSON."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click
import msgspec

from sharequeue.cli.output import (
    LENGTH,
    Gateway,
    asks_gateway,
    echo_json,
    key_values,
    length_ms,
    moment_ms,
    show_table,
    shown_ms,
)
from sharequeue.protocol import apis
from sharequeue_http.forms.api import Api

CALLS: Final[Mapping[str, Api]] = {
    api.operation_id: api
    for api in vars(apis).values()
    if isinstance(api, Api) and not (api.internal or api.streams or api.raw_body)
}
"""The calls that a user may make, but those whose bodies are no JSON and the stream."""
PAST: Final = ("from_ms", "to_ms", "after_ms", "before_ms", "made_before_ms")
"""Members to which a length of time means so long ago."""
PLACE: Final = ("group_id", "topic", "partition")
"""Members that the rows of an inner list take from the thing which has the list."""

Parts = dict[str, msgspec.Raw]


@click.command()
@click.argument("operation", required=False, metavar="[OPERATION]", type=click.Choice(list(CALLS)))
@click.argument("members", nargs=-1, metavar="[NAME=VALUE]...")
@asks_gateway
async def call(operation: str | None, members: tuple[str, ...], gateway: Gateway) -> None:
    """Make the call OPERATION of the HTTP API, such as listTransactions. Without OPERATION it lists all calls.

    NAME is a parameter of the path, or a member of the query or of the body: docs/calls.md has them. VALUE is a text,
    or JSON where no text fits. A member in _ms takes a length or a time too: delay_ms=10m, from_ms=2h (two hours ago),
    from_ms=2026-11-21T08:00 (UTC if it has no zone). A list is followed to its end; with page_size=N it is one page.
    """
    if operation is None:
        show_table(("call", "does"), [(name, CALLS[name].summary) for name in sorted(CALLS)])
        return
    await make(CALLS[operation], members, gateway)


async def make(api: Api, members: Sequence[str], gateway: Gateway) -> None:
    path, request = request_of(api, members)
    answer = await gateway.ask(api, request, **path)
    if api.response is None:
        click.echo(answer, nl=False)
        return
    parts = _parts(answer)
    one_page = api.method != "GET" or any(member.startswith("page_size=") for member in members)
    while not one_page and (token := parts.pop("next_page_token", None)):
        request.page_token = msgspec.json.decode(token)
        following = _parts(await gateway.ask(api, request, **path))
        lists = {name: part for name, part in parts.items() if bytes(part).startswith(b"[")}
        parts |= following | {name: _joined(part, following.get(name)) for name, part in lists.items()}
    if gateway.as_json:
        echo_json(msgspec.json.encode(parts))
    else:
        _show(parts)


def fields_of(api: Api) -> dict[str, msgspec.structs.FieldInfo]:
    """The members of the query or of the body."""
    return {} if api.request is None else {each.encode_name: each for each in msgspec.structs.fields(api.request)}


def request_of(api: Api, members: Sequence[str]) -> tuple[dict[str, str], Any]:
    """The parameters of the path, and the request. Raises: click.UsageError: a member is missing, or does not fit."""
    given = key_values(members, api.operation_id)
    path = {name: given.pop(name, "") for name in re.findall(r"{(\w+)}", api.path)}
    fields = fields_of(api)
    if wrong := [*(name for name, text in path.items() if not text), *(given.keys() - fields.keys())]:
        raise click.UsageError(
            f"{api.operation_id} takes {', '.join([*path, *fields]) or 'nothing'}: look at {wrong[0]}"
        )
    values = {fields[name].name: _value(fields[name], text) for name, text in given.items()}
    try:
        return path, api.request and api.request(**values)
    except TypeError as fault:
        raise click.UsageError(f"{api.operation_id}: {fault}") from None


def _value(field: msgspec.structs.FieldInfo, text: str) -> Any:
    """The value of a member. Raises: click.UsageError: it does not fit."""
    name = field.encode_name
    if name.endswith("_ms") and not text.isdigit():
        length = length_ms(text, name) if LENGTH.fullmatch(text) else None
        return moment_ms(text, name) if length is None else time.time_ns() // 10**6 - length if name in PAST else length
    try:
        return msgspec.convert(text, field.type, strict=False)
    except msgspec.ValidationError as fault:
        try:
            return msgspec.json.decode(text, type=field.type)
        except msgspec.DecodeError as wrong:
            raise click.UsageError(f"{name}: {wrong if text[:1] in ('[', '{') else fault}") from None


def _parts(answer: bytes | msgspec.Raw) -> Parts:
    return msgspec.json.decode(answer, type=Parts)


def _list(part: msgspec.Raw) -> list[msgspec.Raw]:
    return msgspec.json.decode(part, type=list[msgspec.Raw])


def _joined(part: msgspec.Raw, following: msgspec.Raw | None) -> msgspec.Raw:
    return part if following is None else msgspec.Raw(msgspec.json.encode(_list(part) + _list(following)))


def _show(answer: Parts) -> None:
    """Print a table for each kind of thing in an answer: a line for each thing, a column for each member."""
    tables: dict[str, list[dict[str, object]]] = {}
    for kind, row in _rows("", answer, {}):
        tables.setdefault(kind, []).append(row)
    for kind, rows in tables.items():
        columns = list(dict.fromkeys(name for row in rows for name in row))
        cells = [[row.get(name) for name in columns] for row in rows]
        show_table(columns, cells, title=kind if kind and len(tables) > 1 else None)


def _rows(kind: str, thing: Parts, outer: dict[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
    """The row of a thing and those of the lists of things in it, each with its kind: the member that has the list."""
    lists = {name: part for name, part in thing.items() if bytes(part).startswith(b"[{")}
    plain = {name: _cell(name, part) for name, part in thing.items() if name not in lists}
    if plain:
        yield kind, outer | plain
    inside = {name: value for name, value in (outer | plain).items() if name in PLACE}
    for name, part in lists.items():
        for each in _list(part):
            yield from _rows(name, _parts(each), inside)


def _cell(name: str, part: msgspec.Raw) -> object:
    """A member as a cell: a text or a number as it is, a time in UTC, anything else as JSON."""
    text = bytes(part)
    if text.startswith(b'"'):
        return msgspec.json.decode(text)
    if name.endswith(("_at_ms", "hour_ms")) and text.isdigit():
        return shown_ms(int(text))
    return None if text in (b"null", b"[]", b"{}") else text.decode()
