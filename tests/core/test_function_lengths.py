"""A function fits a screen. Migrations and tests may be lists of statements; the product may not."""

import ast
from collections.abc import Iterator
from pathlib import Path

MOST_LINES = 70
PROJECT = Path(__file__).parents[2]
PRODUCT = ("sharequeue", "sharequeue_http", "services", "pipeline")


def long_functions(source: str, most: int = MOST_LINES) -> Iterator[tuple[str, int]]:
    """Name and lines of each function with more than `most` lines, from `def` on."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > most:
                yield node.name, lines


def test_no_function_of_the_product_is_longer_than_seventy_lines() -> None:
    nested = "@cached\nasync def f():\n    def g():\n        return 1\n    return g\n"
    assert list(long_functions(nested, most=3)) == [("f", 4)]
    modules = [path for folder in PRODUCT for path in (PROJECT / folder).rglob("*.py")]
    assert len(modules) > 300
    found = {str(path.relative_to(PROJECT)): list(long_functions(path.read_text())) for path in modules}
    assert {path: functions for path, functions in found.items() if functions} == {}
