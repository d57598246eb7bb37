"""`sharequeue healthcheck`: asks a service whether it can work."""

import asyncio
import contextlib
import os
import sys
import time
from typing import Final, NoReturn
from urllib.parse import urlsplit

import click
import msgspec

from sharequeue.cli.commands import complain
from sharequeue.cli.login import variables
from sharequeue.cli.output import GATEWAY, REFUSED, UNREACHABLE, WRONG_USAGE, explain, json_option
from sharequeue.protocol.messages.operations import Readiness
from sharequeue_http.calling.caller import error_of_answer
from sharequeue_http.calling.connections import CannotConnect, ConnectionLost, Connections, HttpAnswer
from sharequeue_http.calling.login import Login
from sharequeue_http.forms.codec import decoder_of

PATIENCE_S: Final = 5.0


async def _ask(url: str) -> HttpAnswer:
    shown = variables().options
    connections = Connections(url, 1, shown["ca"])
    query = urlsplit(url).query
    try:
        headers = Login(shown["token"]).headers()
        deadline = time.monotonic() + PATIENCE_S
        return await connections.request("GET", f"?{query}" if query else "", headers, None, deadline)
    finally:
        connections.close()


@click.command()
@click.argument("url", required=False)
@json_option
def healthcheck(url: str | None, as_json: bool) -> None:
    """Ask a service whether it can work: exit 0 if its /readyz says ready or degraded.

    URL is the address of a service, with or without /readyz. Without URL the command asks the gateway that
    SHAREQUEUE_URL names, or else the one that `sharequeue up` runs. Exit codes: 1 it cannot work, 2 URL is not a URL, 3
    no answer.
    """

    def end(why: str, code: str, exit_code: int) -> NoReturn:
        complain(why, as_json=as_json, code=code, by="sharequeue healthcheck")
        sys.exit(exit_code)

    url = url or os.environ.get("SHAREQUEUE_URL") or GATEWAY
    try:
        if not urlsplit(url).path.strip("/"):
            url = url.rstrip("/") + "/readyz"
        status, headers, body = asyncio.run(_ask(url))
    except ValueError as fault:
        end(str(fault), "WRONG_USAGE", WRONG_USAGE)
    except (CannotConnect, ConnectionLost, TimeoutError) as fault:
        why = str(fault) or "it did not answer in time"
        end(f"cannot reach {url}: {why}", "UNREACHABLE", UNREACHABLE)
    with contextlib.suppress(msgspec.DecodeError):
        ready = decoder_of(Readiness).decode(body).status != "unavailable" and status == 200
        click.echo(body, err=not ready)
        sys.exit(0 if ready else REFUSED)
    error = error_of_answer(body, status, headers, f"{url} answered")
    if error.problem is not None:
        sys.exit(explain(error, as_json=as_json))
    end(error.detail, "UNEXPECTED_ANSWER", REFUSED)
