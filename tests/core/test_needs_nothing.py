"""Tests in this folder need nothing: no event loop, no socket, no thread, no process. Others are in tests/shell."""

import ast
from pathlib import Path

NEEDS_SOMETHING = {"asyncio", "httpx", "multiprocessing", "socket", "subprocess", "threading", "uvloop"}


def imported(source: str) -> set[str]:
    """The packages that a module imports."""
    packages = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            packages.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            packages.add((node.module or "").partition(".")[0])
    return packages


def test_core_imports_neither_event_loops_nor_sockets_nor_processes() -> None:
    assert imported("import os, asyncio.events\nfrom socket import socket") & NEEDS_SOMETHING == {"asyncio", "socket"}
    modules = Path(__file__).parent.glob("*.py")
    found = {path.name: imported(path.read_text()) & NEEDS_SOMETHING for path in modules}
    assert {name: packages for name, packages in found.items() if packages} == {}
