"""`python -m docs.sync_client`: writes sharequeue/client/sync.py again, from the async classes.

a class of sharequeue.client ──▶ its public methods: source of the signature, docstring ──▶ a method without async
                                                                                                   │
sharequeue/client/loop_thread.py ──▶ what is not regular: the thread, its end, `with` ─────────────▶ sync.py
"""

import ast
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Generic

from sharequeue import client

PATH: Final = Path(client.__file__).with_name("sync.py")
HEAD: Final = '''# Made by `make renew-document` from the classes of `sharequeue.client`; do not edit. docs/sync_client.py makes it.
"""`Producer`, `ShareConsumer` and `Admin` without async, for ordinary code.

Each object owns an async object and the thread of its event loop, which `close` ends. A method calls the same method
there and waits for the answer. Signatures are those of `sharequeue.client`, and so is what they raise; a call after
`close` raises IllegalState. Several threads may use one Producer. One thread at a time uses a ShareConsumer.
"""

import concurrent.futures
from collections.abc import Iterator
from typing import Generic, cast
from sharequeue import client
from sharequeue.client.loop_thread import OnThread, OwnThread
'''
BASES: Final = dict.fromkeys(("Producer", "Transaction", "ShareConsumer", "RecordStream", "Admin"), "OwnThread")
BASES["Transaction"] = "OnThread"
"""The classes. A transaction lives on the thread of its producer."""
METHODS: Final = {"__init__": "__init__", "__aiter__": "__iter__", "__anext__": "__next__"}
"""Special methods that are made, and their names without async. The bases have the others."""
NEEDS_NO_LOOP: Final = frozenset({"acknowledge", "stop"})
"""Ordinary methods that are called in the caller's thread: `acknowledge`, since this saves two switches of threads for
each record, and `stop`, which must not wait in a signal handler."""
ANSWERS: Final = {
    "Pending": ('"concurrent.futures.Future[Produced]"', "self._thread.later({})"),
    "Transaction": ('"Transaction"', "Transaction(self._thread, {})"),
}
"""Types of answers that differ without async: the type in their place, and the code that makes it."""
WORDS: Final = (
    ("async with", "with"),
    ("async for ", "for "),
    ("await ", ""),
    ("One task uses", "One thread uses"),
    ("of a record that nobody awaited aborts it too, and is raised", "of `send_soon` is in its future alone"),
    (" Call it inside the event loop.", ""),
    ("The event loop calls", "The consumer's own thread calls"),
)
"""Words of async docstrings, and their replacements."""

Def = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """The source of a module, and where each name comes from that it imports or defines. `made`: the class to make."""

    def __init__(self, kind: type, made: str) -> None:
        self.made = made
        module = sys.modules[kind.__module__]
        self.source = inspect.getsource(module)
        tree = ast.parse(self.source)
        self.kind = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
        self.origins = dict.fromkeys(vars(module), kind.__module__)
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                self.origins.update((name.name, str(node.module)) for name in node.names)

    def docstring(self, node: ast.stmt) -> str:
        """A string as it is written, without its words of async."""
        text = ast.get_source_segment(self.source, node) or ""
        for word, instead in WORDS:
            text = text.replace(word, instead)
        return text

    def members(self) -> Iterator[tuple[str, str, list[ast.AST]]]:
        """Each public attribute and method: its name, its source without async, the types that the source names."""
        body = self.kind.body
        overloads: dict[str, str] = {}
        """Those before a method, by its name."""
        for node, after in zip(body, [*body[1:], ast.Pass()], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
                answer = ast.unparse(node.annotation)
                yield node.target.id, self._property(node.target.id, answer, after), [node.annotation]
            elif isinstance(node, Def) and node.returns and (node.name in METHODS or not node.name.startswith("_")):
                source = self._method(node, ast.unparse(node.returns))
                if [ast.unparse(each) for each in node.decorator_list] == ["overload"]:
                    overloads[node.name] = overloads.get(node.name, "") + source
                    continue
                types: list[ast.AST] = [node.args, node.returns]
                if node.name in overloads:  # a type checker tries no such many unions: the answer alone has a type
                    source = source.replace(
                        "    return self._thread", f"    answer: {ast.unparse(node.returns)} = self._thread"
                    )
                    source = overloads[node.name] + source.replace("self._inner", "cast(Any, self._inner)")
                    source += "    return answer\n"
                    types += [ast.parse("overload, Unpack[SendOptions]")]
                yield node.name, source, types

    def _property(self, name: str, answer: str, doc: ast.stmt) -> str:
        return f"@property\ndef {name}(self) -> {answer}:\n    {self.docstring(doc)}\n    return self._inner.{name}\n"

    def _method(self, node: Def, answer: str) -> str:
        if [ast.unparse(each) for each in node.decorator_list] == ["overload"]:
            lines = self.source.splitlines()[node.lineno - 2 : node.end_lineno]
            return textwrap.dedent("\n".join(lines)).replace("async def", "def") + "\n"
        if node.decorator_list:
            return self._property(node.name, answer, node.body[0])
        if node.name == "__aiter__":
            return "def __iter__(self) -> Iterator[Record[V]]:\n    return self\n"
        first = node.body[0]
        has_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        lines = self.source.splitlines()[node.lineno - 1 : first.lineno - 1]
        head = "\n".join(lines).strip().removeprefix("async ").replace(node.name, METHODS.get(node.name, node.name), 1)
        made, wrap = ANSWERS.get(answer, (answer.removeprefix("Async"), "{}"))
        head = head.replace(f"-> {answer}:", f"-> {made}:")
        doc = f"    {self.docstring(first)}\n" if has_doc else ""
        return f"{head}\n{doc}    {'' if answer == 'None' else 'return '}{wrap.format(self._call(node))}\n"

    def _call(self, node: Def) -> str:
        given = [each.arg for each in node.args.args[1:]] + [f"{each.arg}={each.arg}" for each in node.args.kwonlyargs]
        given += [f"**{node.args.kwarg.arg}"] if node.args.kwarg else []
        if node.name == "__init__":
            return f"super().__init__(lambda: client.{self.made}({', '.join(given)}))"
        method = f"self._inner.{node.name}"
        if node.name in NEEDS_NO_LOOP and isinstance(node, ast.FunctionDef):
            return f"{method}({', '.join(given)})"
        function = f"lambda: {method}({', '.join(given)})" if given else method
        if ast.unparse(node.returns or node).startswith("AsyncIterator"):
            return f"self._thread.iterate({function})"
        if node.name == "__anext__":
            return f"self._thread.next({function})"
        if node.name == "close":
            return f"self._end({function})"
        return f"self._thread.{'wait_for' if isinstance(node, ast.AsyncFunctionDef) else 'call'}({function})"


def _class(name: str, base: str) -> tuple[str, set[str]]:
    """The source of a class, and the lines that import what it names."""
    members: dict[str, tuple[str, set[str]]] = {"__init__": ("", set())}  # the first, wherever it stands
    kinds = getattr(client, name).__mro__[:-1]
    values = "[V]" if Generic in kinds else ""
    for kind in reversed([kind for kind in kinds if kind is not Generic]):
        module = Module(kind, name)
        for member, source, types in module.members():
            names = {node.id for each in types for node in ast.walk(each) if isinstance(node, ast.Name)} - {
                "Self",
                "AsyncIterator",
                *ANSWERS,
            }
            imports = {f"from {module.origins[each]} import {each}" for each in names if each in module.origins}
            members[member] = source, imports
    if base == "OnThread":
        del members["__init__"]
    text = "\n".join([module.docstring(module.kind.body[0]), "", *(source for source, _ in members.values())])
    head = f"class {name}({base}[client.{name}{values}]{', Generic[V]' if values else ''}):\n"
    return head + textwrap.indent(text, "    "), set().union(*(imports for _, imports in members.values()))


def made() -> str:
    """The text of sync.py."""
    classes = [_class(name, base) for name, base in BASES.items()]
    imports = set().union(*(lines for _, lines in classes))
    text = "\n".join([HEAD, *sorted(imports), *(source for source, _ in classes)])
    for command in (["check", "--select=I", "--fix-only"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", f"--stdin-filename={PATH}", "-"]
        text = subprocess.run(ruff, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    PATH.write_text(made())
