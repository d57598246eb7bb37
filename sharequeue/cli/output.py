"""Used by all commands: the option for the gateway, calls of it, tables, JSON, messages and exit codes.

Data goes to stdout, messages to stderr. With --json or --jsonl both are JSON. Exit codes: 0 done, 1 refused or failed,
2 wrong usage, 3 the service cannot be reached, 130 interrupted before the work was done.
"""

import asyncio
import contextlib
import functools
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, ParamSpec, TypeVar

import click
import msgspec

from sharequeue.cli.commands import complain
from sharequeue.cli.login import client_of
from sharequeue.client import AcknowledgementError, ApiError
from sharequeue.protocol import apis
from sharequeue_http.calling.caller import Client, decoded
from sharequeue_http.calling.connections import CannotConnect, ConnectionLost
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.codec import encode

REFUSED: Final = 1
WRONG_USAGE: Final = 2
UNREACHABLE: Final = 3

GATEWAY: Final = "http://127.0.0.1:8080"
"""The gateway of `sharequeue up`."""
NOTHING: Final = "-"
"""An empty cell of a table."""

_JSONL: Final = "jsonl"
LENGTH: Final = re.compile(r"([1-9]\d{0,5})([smhd])", re.ASCII)
"""A length of time."""
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

P = ParamSpec("P")
T = TypeVar("T")
Command = Callable[..., Any]
Columns = Mapping[str, str | Callable[[Any], object]]
"""Heads of a table, each with what it shows of a thing: an attribute, or what a function makes of it."""


def _checked_url(context: click.Context, option: click.Parameter, url: str) -> str:
    try:
        Client(url)  # with --database-url nobody shows a token
    except ValueError as fault:
        raise click.BadParameter(str(fault)) from None
    return url


url_option: Final = click.option(
    "--url",
    envvar="SHAREQUEUE_URL",
    callback=_checked_url,
    default=GATEWAY,
    show_default=True,
    show_envvar=True,
    help="the gateway",
)


def json_option(command: Command) -> Command:
    """Add --json and --jsonl. `as_json` is true of the command with either; `echo_json` looks which one was given."""
    lines = click.option(
        "--jsonl", "as_json", flag_value=_JSONL, help="as --json, with a line for each entry of a list"
    )
    return click.option(
        "--json", "as_json", flag_value="json", help="print JSON on stdout, and errors as JSON on stderr"
    )(lines(command))


def say(text: str) -> None:
    """Print a message for the user, on stderr."""
    click.echo(text, err=True)


def unreachable(error: ApiError) -> bool:
    """Return whether the service gave no answer at all."""
    return isinstance(error.__cause__, CannotConnect | ConnectionLost | TimeoutError)


def run(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a command of a coroutine function. A failure becomes an exit code and one line on stderr, which is JSON if
    the command's `as_json` is set."""

    @functools.wraps(work)
    def command(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return asyncio.run(work(*arguments, **options))
        except ApiError as error:
            sys.exit(explain(error, as_json=bool(options.get("as_json"))))
        except AcknowledgementError as error:
            complain(str(error), as_json=bool(options.get("as_json")))
            sys.exit(REFUSED)

    return command


def exit_code(error: ApiError) -> int:
    return UNREACHABLE if unreachable(error) else REFUSED


def explain(error: ApiError, *, as_json: bool = False, **more: object) -> int:
    """Print an error on stderr. `more`: fields of its JSON. Returns: the exit code."""
    if as_json:
        click.echo(msgspec.json.encode({**problem_of(error), **more}), err=True)
    elif unreachable(error):
        hint = isinstance(error.__cause__, CannotConnect)
        say(f"sharequeue: {error.detail}" + ("; `sharequeue up` runs a stack, --url names another" if hint else ""))
    else:
        request_id = f" (request {error.problem.request_id})" if error.problem is not None else ""
        say(f"sharequeue: {error.code}: {error.detail}{request_id}")
    return exit_code(error)


def problem_of(error: ApiError) -> dict[str, Any]:
    """An error as JSON: the service's problem document, or `code` and `detail` if the service did not answer."""
    if error.problem is not None:
        return {**msgspec.to_builtins(error.problem), "detail": error.detail}
    code = "UNREACHABLE" if unreachable(error) else error.code
    return {"code": code, "detail": error.detail, "retriable": error.retriable, "definite": error.definite}


async def outside(call: Callable[..., T], *arguments: Any) -> T:
    """Run a call that may never return in a thread, which does not keep the process alive."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def end(settle: Callable[[Any], None], outcome: Any) -> None:
        if not done.cancelled():
            settle(outcome)

    def work() -> None:
        try:
            settled: tuple[Callable[[Any], None], Any] = done.set_result, call(*arguments)
        except BaseException as fault:
            settled = done.set_exception, fault
        with contextlib.suppress(RuntimeError):  # the event loop may have ended
            loop.call_soon_threadsafe(end, *settled)

    threading.Thread(target=work, daemon=True).start()
    return await done


@dataclass(frozen=True)
class Gateway:
    """The gateway that a command asks. `as_json`: the user gave --json."""

    url: str
    as_json: bool = False

    async def ask(self, api: Api, request: Any = None, **path: Any) -> bytes:
        """Call the service once. Returns: the answer's bytes. Raises: ApiError."""
        client = client_of(self.url)
        try:
            answer, _ = await client.relay(api, request, path=path, retry=False)
            return answer
        finally:
            await client.close()

    async def call(self, api: Api, request: Any = None, **path: Any) -> Any:
        """As `ask`. Returns: the answer as its message."""
        return decode(await self.ask(api, request, **path), api)

    async def answered(self, api: Api, request: Any = None, **path: Any) -> Any:
        """As `call`. With --json it returns None, and the answer is printed."""
        answer = await self.ask(api, request, **path)
        if not self.as_json:
            return decode(answer, api)
        echo_json(answer)
        return None

    async def pages(self, api: Api, query: Any, **path: Any) -> AsyncIterator[Any]:
        """The pages of a list, each as its message. `query`: of the first one; it is changed. Raises: ApiError."""
        while True:
            page = await self.call(api, query, **path)
            yield page
            query.page_token = page.next_page_token
            if not query.page_token:
                return

    async def items(self, listed: str, api: Api, query: Any, **path: Any) -> list[Any]:
        """All items of a list. `listed`: the member of its pages that has them. Raises: as `pages`."""
        return [item async for page in self.pages(api, query, **path) for item in getattr(page, listed)]

    async def check_reachable(self) -> None:
        """Ask once whether the service answers. Raises: ApiError."""
        await self.ask(apis.LIVEZ)

    def show(self, message: object, columns: Columns, things: Iterable[Any]) -> None:
        """Print a message with --json, otherwise a table with a line for each of the things."""
        if self.as_json:
            echo_json(message)
        else:
            show_things(columns, things)

    def explain(self, error: ApiError) -> int:
        """Print an error on stderr. Returns: the exit code."""
        return explain(error, as_json=self.as_json)


def asks_gateway(work: Callable[..., Coroutine[Any, Any, None]]) -> Command:
    """Make a command of a coroutine function that takes --json and --url. It gets them as `gateway`."""

    @functools.wraps(work)
    async def command(*arguments: Any, url: str, as_json: bool, **options: Any) -> None:
        await work(*arguments, gateway=Gateway(url, as_json), **options)

    return json_option(url_option(run(command)))


def echo_json(answer: object) -> None:
    """Print JSON: an answer's bytes as the service gave them, or a message. It is one line; with --jsonl an answer that
    begins with a list is a line for each entry of its lists."""
    document = answer if isinstance(answer, bytes) else encode(answer)
    in_lines = click.get_current_context().params.get("as_json") == _JSONL
    for line in _entries(document) if in_lines else (document,):
        click.echo(line)


def _entries(document: bytes) -> Sequence[bytes]:
    parts = [bytes(part) for part in msgspec.json.decode(document, type=dict[str, msgspec.Raw]).values()]
    if not (parts and parts[0].startswith(b"[")):
        return (document,)
    lists = (msgspec.json.decode(part, type=list[msgspec.Raw]) for part in parts if part.startswith(b"["))
    return [bytes(entry) for entries in lists for entry in entries]


def decode(answer: bytes, api: Api) -> Any:
    """An answer as its message. Raises: UnexpectedAnswer: it has another form."""
    return decoded(api, answer, "the gateway")


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table on stdout, its columns separated by spaces, as kafka-share-groups.sh prints them.

    Empty cells are dashes and heads have no spaces, so programs can count the columns.
    """
    if title is not None:
        click.echo(title)
    lines = [[column.replace(" ", "-") for column in columns]]
    lines += ([NOTHING if cell is None or cell == "" else str(cell) for cell in row] for row in rows)
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def show_things(columns: Columns, things: Iterable[Any], *, title: str | None = None) -> None:
    cells = [attrgetter(of) if isinstance(of, str) else of for of in columns.values()]
    show_table(tuple(columns), ([cell(thing) for cell in cells] for thing in things), title=title)


def key_values(given: Sequence[str], option: str) -> dict[str, str]:
    """`k=v` options as a dict. Raises: click.UsageError."""
    values = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.UsageError(f"{option} takes NAME=VALUE, not {text!r}")
        values[key] = value
    return values


def moment_ms(text: str, option: str) -> int:
    """The time that an option names, in epoch milliseconds; UTC if it has no zone. Raises: click.BadParameter."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"must be a time like 2026-11-21T08:00, not {text!r}", param_hint=option) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def shown_ms(at_ms: int | None) -> str | None:
    """A time in UTC, to the second."""
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def length_ms(text: str, option: str) -> int:
    """The milliseconds of a length of time like 90d, 24h, 30m or 10s. Raises: click.BadParameter."""
    found = LENGTH.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"must be a length of time like 90d, 24h or 30m, not {text!r}", param_hint=option)
    return int(found[1]) * _UNIT_MS[found[2]]
