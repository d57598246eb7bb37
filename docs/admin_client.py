"""`python -m docs.admin_client`: writes sharequeue/client/admin.py again, from the table of calls.

a row of sharequeue.protocol.apis ──▶ parameters of its path, members of its request ──▶ a method of Admin
"""

import re
import subprocess
import sys
import textwrap
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

import sharequeue
from sharequeue.protocol import apis
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.codec import Utf8Text

PATH: Final = Path(sharequeue.__file__).parent / "client" / "admin.py"
OTHER_TAGS: Final = ("Internal", "Operations", "Records")
ALSO: Final = frozenset({"READ_RECORDS"})
LEFT_OUT: Final = frozenset(
    {
        "SHARE_GROUP_HEARTBEAT",
        "SCHEDULE_RECORDS",
        "BEGIN_TRANSACTION",
        "COMMIT_TRANSACTION",
        "ABORT_TRANSACTION",
        "LIST_RECORD_BATCHES",
        "REPLACE_RECORD_BATCHES",
    }
)
"""Calls of a ShareConsumer, a Producer or the compaction."""
HEAD: Final = '''# Made by `make renew-document` from the table of calls; do not edit. docs/admin_client.py makes it.
"""The calls of operators, one method each."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal
from sharequeue.client.operator_calls import OperatorCalls
from sharequeue.protocol import apis
'''
DOCSTRING: Final = '''    """Manages topics, groups, dead letters, scheduled records, transactions, keys and rights.

    There is a method for each such call, with its name. It takes the parameters of the path and the members of the
    request, and returns the answer. A member with members of its own is a mapping, or the message of that form. A
    method that lists yields what it lists, and asks for the next page by itself; a list with several kinds yields its
    pages. docs/calls.md says what each call does. Each raises ApiError.

    Args:
        url, token, headers, ca: as of Producer. deadline_ms: for all tries of a call.

    Example:
        async with Admin("http://127.0.0.1:8080") as admin:
            await admin.create_topic("orders", partitions=4)
            async for topic in admin.list_topics():
                print(topic.name)
    """

'''


class Names:
    """Writes types as source, and notes which messages they name."""

    def __init__(self) -> None:
        self.messages: set[type] = set()

    def of(self, kind: Any, *, given: bool) -> str:
        """`given`: of an argument, which may be any mapping or sequence of such a form."""
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Annotated:
            return self.of(inner[0], given=given)
        if origin in (typing.Union, types.UnionType):
            return " | ".join(self.of(each, given=given) for each in inner)
        if origin is typing.Literal:
            return f"Literal[{', '.join(map(repr, inner))}]"
        if origin in (list, dict):
            name = {list: "Sequence", dict: "Mapping"}[origin] if given else origin.__name__
            return f"{name}[{', '.join(self.of(each, given=given) for each in inner)}]"
        if kind in (None, types.NoneType):
            return "None"
        if issubclass(kind, Utf8Text):
            return "str"
        if issubclass(kind, msgspec.Struct):
            self.messages.add(kind)
            return f"{kind.__name__} | Mapping[str, Any]" if given else kind.__name__
        return str(kind.__name__)


def _members(api: Api, names: Names) -> Iterator[tuple[str, str, str]]:
    """Each member of the request as (name, type, default); "": it must be given."""
    if api.request is None:
        return
    kinds = typing.get_type_hints(api.request)
    for member in msgspec.structs.fields(api.request):
        default = "" if member.default is msgspec.NODEFAULT else repr(member.default)
        if member.default_factory is not msgspec.NODEFAULT:
            default = {list: "()", dict: "{}"}[member.default_factory]
        yield member.name, names.of(kinds[member.name], given=True), default


def _method(constant: str, api: Api, names: Names) -> str:
    name = re.sub(r"([A-Z])", r"_\1", api.operation_id).lower()
    path = re.findall(r"{(\w+)}", api.path)
    kinds = typing.get_type_hints(api.response) if isinstance(api.response, type) else {}
    listing = name.startswith(("list_", "find_")) and "next_page_token" in kinds
    members = [each for each in _members(api, names) if not (listing and each[0] == "page_token")]
    given = [f"{each}: {'int' if each in ('partition', 'offset') else 'str'}" for each in path]
    given += [f"{each}: {kind}" for each, kind, default in members if not default]
    optional = [f"{each}: {kind} = {default}" for each, kind, default in members if default]
    head = ", ".join(["self", *given, *(["*", *optional] if optional else [])])
    passed = f"apis.{constant}, {{{', '.join(f'{each!r}: {each}' for each in path)}}}"
    passed += "".join(f", {each}={each}" for each, _, _ in members)
    answer = names.of(api.response, given=False)
    doc = textwrap.indent(textwrap.fill(f'"""{api.summary}"""', 110), "    ") + "\n"
    if not listing:
        call = f"await self._call({'object' if answer == 'None' else answer}, {passed})"
        return f"async def {name}({head}) -> {answer}:\n{doc}    {'' if answer == 'None' else 'return '}{call}\n"
    lists = [(each, kind) for each, kind in kinds.items() if typing.get_origin(kind) is list]
    call = f"self._pages({passed})"
    if len(lists) == 1:
        names.messages.discard(api.response)
        ((listed, kind),) = lists
        answer, call = names.of(typing.get_args(kind)[0], given=False), f"self._items({listed!r}, {passed})"
    return f"def {name}({head}) -> AsyncIterator[{answer}]:\n{doc}    return {call}\n"


def made() -> str:
    """The text of admin.py."""
    names = Names()
    rows = [(constant, api) for constant, api in vars(apis).items() if isinstance(api, Api)]
    rows = [row for row in rows if row[0] in ALSO or (row[1].tag not in OTHER_TAGS and row[0] not in LEFT_OUT)]
    rows.sort(key=lambda row: row[1].tag)
    methods = "\n".join(_method(*row, names) for row in rows)
    body = DOCSTRING + textwrap.indent(methods, "    ")
    imports = [f"from {kind.__module__} import {kind.__name__}" for kind in sorted(names.messages, key=str)]
    text = "\n".join([HEAD, *imports, "class Admin(OperatorCalls):", body])
    for command in (["check", "--select=I,F401", "--fix-only"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", f"--stdin-filename={PATH}", "-"]
        text = subprocess.run(ruff, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    PATH.write_text(made())
