"""Commands that need more than the client: one line names the extra to install where a library is missing."""

import contextlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final

import click

from sharequeue.cli.commands import complain
from sharequeue.cli.output import REFUSED

SERVER: Final = ("alembic", "asyncpg", "fastapi", "redis", "sqlalchemy", "uvicorn")
"""Modules of the extra [server]: with all of these installed, it is."""


@contextlib.contextmanager
def extra(name: str, command: str, *modules: str, as_json: bool = False) -> Iterator[None]:
    """Imports in its body may fail: the command then prints one line and exits with 1.

    Args:
        name: the extra with the libraries that the body imports.
        command: as the user typed it, without `sharequeue`.
        modules: further modules that must be installed, although the body does not import them.
    """
    try:
        for module in modules:
            if find_spec(module) is None:
                raise ModuleNotFoundError(name=module)
        yield
    except ModuleNotFoundError as fault:
        missing = str(fault.name).partition(".")[0]
        if missing in sys.stdlib_module_names:
            detail = f"this needs Linux or macOS: Python has no module {missing} on this system"
        else:
            detail = f"{missing} is not installed: install sharequeue with its extra [{name}]"
        complain(detail, as_json=as_json, by=f"sharequeue {command}")
        raise click.exceptions.Exit(REFUSED) from None
