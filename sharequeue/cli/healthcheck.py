"""`sharequeue healthcheck`: asks a service whether it can work."""

import http.client
import os
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import click

from sharequeue.cli.commands import complain
from sharequeue.cli.output import GATEWAY, REFUSED, UNREACHABLE, WRONG_USAGE, json_option
from sharequeue.stack.open_url import open_url


@click.command()
@click.argument("url", required=False)
@json_option
def healthcheck(url: str | None, as_json: bool) -> None:
    """Ask a service whether it can work: exit 0 if its /readyz says ready or degraded.

    URL is the address of a service, with or without /readyz. Without URL the command asks the gateway that
    SHAREQUEUE_URL names, or else the one that `sharequeue up` runs. Exit codes: 1 it cannot work, 2 URL is not a URL, 3
    no answer.
    """
    url = url or os.environ.get("SHAREQUEUE_URL") or GATEWAY
    if not urlsplit(url).path.strip("/"):
        url = url.rstrip("/") + "/readyz"
    try:
        with open_url(url, timeout=5) as response:
            answer, media_type = response.read(), response.headers.get_content_type()
        if media_type != "application/json" or response.url != url:
            by = f"{url} does not answer as a service: {response.status} from {response.url} ({media_type})"
            complain(by, as_json=as_json, code="UNEXPECTED_ANSWER", by="sharequeue healthcheck")
            sys.exit(REFUSED)
        click.echo(answer.decode(errors="replace"))
    except urllib.error.HTTPError as fault:
        click.echo(fault.read().decode(errors="replace"), err=True)
        sys.exit(REFUSED)
    except ValueError as fault:
        complain(
            f"{url!r} is not a URL of a service: {fault}",
            as_json=as_json,
            code="WRONG_USAGE",
            by="sharequeue healthcheck",
        )
        sys.exit(WRONG_USAGE)
    except (OSError, http.client.HTTPException) as fault:
        why = getattr(fault, "reason", fault)
        complain(f"cannot reach {url}: {why}", as_json=as_json, code="UNREACHABLE", by="sharequeue healthcheck")
        sys.exit(UNREACHABLE)
