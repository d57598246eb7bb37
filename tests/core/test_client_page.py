"""The calls that docs/client.md names in its sentences and tables are calls of the client, with and without asyncio."""

import ast
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

from sharequeue import client
from sharequeue.client import sync

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
CODE = re.compile(r"`([^`\n]+)`")
SECTIONS = re.compile(
    r"^##+ (Producer|Transactions|ShareConsumer|RecordStream|Admin)\n(.*?)(?=^##)", re.MULTILINE | re.DOTALL
)
PARTS: dict[str, str] = dict(SECTIONS.findall(PAGE))
OF = {
    "Producer": ("Producer",),
    "Transactions": ("Producer", "Transaction"),
    "ShareConsumer": ("ShareConsumer",),
    "RecordStream": ("RecordStream",),
    "Admin": ("Admin",),
}
"""The classes that the sentences of a section are about."""
VARIABLES = {"producer": "Producer", "t": "Transaction", "consumer": "ShareConsumer", "stream": "RecordStream"}


def codes(title: str) -> list[str]:
    return CODE.findall(re.sub(r"^```.*?^```$", "", PARTS[title], flags=re.MULTILINE | re.DOTALL))


def calls() -> list[tuple[str, str]]:
    """Each call as (section, text): `close(timeout_ms=…)`, `t.acknowledge(record)`, `Producer(url, …)`."""
    found = [(title, code) for title in PARTS for code in codes(title) if re.fullmatch(r"[A-Za-z_.]+\(.*\)", code)]
    return [(title, call) for title, call in found if call != "callback(committed, error)"]  # the reader's own


def members() -> list[tuple[str, str]]:
    """Each member that a page reads of an object: `t.outcome`."""
    return [pair for text in PARTS.values() for pair in re.findall(r"`(producer|t|consumer|stream)\.(\w+)`", text)]


def bind(title: str, call: str, module: ModuleType) -> None:
    """Raises: TypeError, AttributeError: the client has no such call, or it takes other arguments."""
    node = ast.parse(re.sub(r"=(?=[,)])|=…", "=None", call), mode="eval").body
    assert isinstance(node, ast.Call)
    given = [None] * len(node.args)
    named = {str(keyword.arg): None for keyword in node.keywords}
    if isinstance(node.func, ast.Attribute):
        assert isinstance(node.func.value, ast.Name)
        owners: tuple[str, ...] = (VARIABLES[node.func.value.id],)
        name = node.func.attr
    else:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name in VARIABLES.values():
            inspect.signature(getattr(module, name)).bind(*given, **named)
            return
        owners = OF[title]
    method = next(getattr(getattr(module, owner), name) for owner in owners if hasattr(getattr(module, owner), name))
    inspect.signature(method).bind(None, *given, **named)


@pytest.mark.parametrize("module", [client, sync], ids=lambda module: module.__name__)
@pytest.mark.parametrize(("title", "call"), calls())
def test_each_call_is_one_of_the_client(title: str, call: str, module: ModuleType) -> None:
    bind(title, call, module)


@pytest.mark.parametrize("module", [client, sync], ids=lambda module: module.__name__)
@pytest.mark.parametrize(("variable", "name"), members())
def test_each_member_is_one_of_the_client(variable: str, name: str, module: ModuleType) -> None:
    assert hasattr(getattr(module, VARIABLES[variable]), name)


@pytest.mark.parametrize("module", [client, sync], ids=lambda module: module.__name__)
@pytest.mark.parametrize("title", ["Producer", "ShareConsumer"])
def test_each_argument_of_the_tables_exists(title: str, module: ModuleType) -> None:
    table = PARTS[title].partition("| argument | default |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in CODE.findall(row.split("|")[1] if "|" in row else "")}
    assert named
    assert named <= set(inspect.signature(getattr(module, title)).parameters)
