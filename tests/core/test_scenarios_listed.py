"""Every row of the conformance scenarios is a test, or SCENARIOS.md says why not.

A row is a test if its id is in the test's name (`test_fa_001_…`) or in a string of the test module that is not a
docstring: the id of a parameter set.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROWS = (TESTS / "scenario_ids.txt").read_text().split()
FAMILIES = "|".join(sorted({row[:2] for row in ROWS}))
ROW = re.compile(rf"\b(?:{FAMILIES})-\d{{3}}\b")
NAME = re.compile(rf"(?<=_)({FAMILIES})_(\d{{3}})(?=_|$)", re.IGNORECASE)


def named(source: str) -> Iterator[str]:
    """The rows that are tests in a module."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield from (f"{family.upper()}-{number}" for family, number in NAME.findall(node.name))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from ROW.findall(node.value)


@cache
def rows_of_tests() -> set[str]:
    sources = [path.read_text() for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    return {row for source in sources if ROW.search(source) or NAME.search(source) for row in named(source)}


def listed() -> dict[str, list[str]]:
    """The rows of SCENARIOS.md's tables, by the heading above: `Not run: …` or `Run otherwise: …`."""
    sections: dict[str, list[str]] = {"Not run": [], "Run otherwise": []}
    heading = ""
    for line in (TESTS / "SCENARIOS.md").read_text().splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ").partition(":")[0]
        elif line.startswith("| ") and ROW.search(line):
            first, reason = [cell.strip() for cell in line.strip("|").split("|")]
            assert len(reason) > 10, f"{first} wants a reason"
            sections[heading] += ROW.findall(first)
    return sections


def test_the_list_of_rows_is_ascending_and_names_each_once() -> None:
    assert sorted(set(ROWS)) == ROWS
    assert len(ROWS) == 299


def test_every_row_has_a_test_or_a_reason_not_to_run() -> None:
    tests, not_run = rows_of_tests(), listed()["Not run"]
    assert len(set(not_run)) == len(not_run)
    assert sorted({*ROWS} - tests - {*not_run}) == [], "neither tested nor listed"
    assert sorted(tests & {*not_run}) == [], "tested, and listed as not run"
    assert sorted({*not_run} - {*ROWS}) == [], "no such row"


def test_every_row_that_is_run_otherwise_has_a_test() -> None:
    otherwise = listed()["Run otherwise"]
    assert len(set(otherwise)) == len(otherwise)
    assert sorted({*otherwise} - rows_of_tests()) == []
