"""The client without async is made from the async one, and has what that has."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from docs import admin_client, sync_client
from sharequeue import client
from sharequeue.client import sync

OTHER_ANSWERS = {"send_soon", "transaction"}
"""Return something else in place of what would be awaited later, or the class without async. So do lists."""


def test_the_client_without_async_is_up_to_date() -> None:
    assert sync_client.PATH.read_text() == sync_client.made(), "run python -m docs.sync_client"


def test_admin_has_the_calls_of_the_table() -> None:
    assert admin_client.PATH.read_text() == admin_client.made(), "run python -m docs.admin_client"


def test_no_docstring_speaks_of_async() -> None:
    classes = sync_client.PATH.read_text().partition("\nclass ")[2]
    assert not re.findall(r"\basync\b|\bawait|event loop", classes)


def members(kind: type) -> dict[str, Any]:
    found = {name: member for each in reversed(kind.__mro__[:-1]) for name, member in vars(each).items()}
    return {name: member for name, member in found.items() if not name.startswith("_")}


def signature(function: Callable[..., Any], *, answer: bool) -> inspect.Signature:
    signature = inspect.signature(function)
    return signature if answer else signature.replace(return_annotation=None)


@pytest.mark.parametrize("kind", ["Producer", "Transaction", "ShareConsumer", "RecordStream", "Admin"])
def test_sync_classes_have_the_methods_of_the_async_ones(kind: str) -> None:
    theirs, ours = getattr(client, kind), getattr(sync, kind)
    if kind != "Transaction":  # `Producer.transaction` makes it
        assert signature(ours.__init__, answer=False) == signature(theirs.__init__, answer=False)
    for name, member in members(theirs).items():
        written = members(ours)[name]
        assert isinstance(written, property) == isinstance(member, property)
        if not isinstance(member, property):
            answer = name not in OTHER_ANSWERS and not name.startswith(("list_", "find_"))
            assert signature(written, answer=answer) == signature(member, answer=answer), name
            assert inspect.getdoc(written)
    extra = members(ours).keys() - members(theirs).keys()
    assert extra <= theirs.__annotations__.keys(), extra
