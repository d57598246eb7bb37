"""Shows who calls, for a command: SHAREQUEUE_TOKEN or SHAREQUEUE_TOKEN_FILE, and SHAREQUEUE_CA for URLs of https.

There is no option for a token: every user of a machine can read the arguments of its processes.
"""

import os
from typing import NamedTuple

import click

from sharequeue_http.calling.caller import Client
from sharequeue_http.calling.connections import trust
from sharequeue_http.calling.login import Login, LoginOptions, token_of_file


class Variables(NamedTuple):
    """The variables of the environment; `token_file` and `ca` are paths."""

    token: str | None
    token_file: str | None
    ca: str | None

    @property
    def options(self) -> LoginOptions:
        """A file is read for each request, so that a new token counts at once."""
        token = self.token if self.token_file is None else token_of_file(self.token_file)
        return LoginOptions(token=token, ca=self.ca)


def variables() -> Variables:
    """The variables, checked. Raises: click.UsageError: they cannot be used; the text has no token."""
    names = ("SHAREQUEUE_TOKEN", "SHAREQUEUE_TOKEN_FILE", "SHAREQUEUE_CA")
    found = Variables(*(os.environ.get(name) or None for name in names))
    if found.token is not None and found.token_file is not None:
        raise click.UsageError("set one of SHAREQUEUE_TOKEN and SHAREQUEUE_TOKEN_FILE, not both")
    name = names[0] if found.token is not None else names[1]
    try:
        Login(found.token if found.token_file is None else token_of_file(found.token_file)())
        name = names[2]
        if found.ca is not None:
            trust(found.ca)
    except OSError as fault:
        raise click.UsageError(f"{name}: {found.token_file}: {fault.strerror}") from None
    except ValueError as fault:
        raise click.UsageError(f"{name}: {fault}") from None
    return found


def client_of(url: str, *, deadline_s: float = 10.0) -> Client:
    """A client of the gateway that shows who calls. Raises: click.UsageError: as `variables`."""
    options = variables().options
    return Client(url, login=Login(options["token"]), ca=options["ca"], deadline_s=deadline_s)
