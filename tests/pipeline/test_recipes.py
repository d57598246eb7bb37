"""docs/pipeline-recipes.md: each block runs as written, one after another, and prints what the page shows below it."""

import asyncio
import contextlib
import io
import itertools
import re
import shlex
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from sharequeue.cli import main
from sharequeue.stack.stack import Stack
from tests.system.test_readme import PRINTED_URL

PAGE = Path(__file__).parents[2] / "docs" / "pipeline-recipes.md"
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
DATABASE = "postgresql://localhost/shop"


def command(line: str) -> str:
    """What a line of `sh` prints, run in this process: it has the session and its archive job needs one."""
    program, *words = shlex.split(line)
    assert program == "sharequeue"
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, (line, done.output, done.exception)
    return done.stdout


@pytest.mark.soak
def test_the_recipes_print_what_they_show(
    spark: SparkSession, stack: Stack, new_database: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREQUEUE_URL", stack.url)
    ours = {PRINTED_URL: stack.url, "/tmp/recipes": str(tmp_path), DATABASE: new_database()}
    for shown in ours:
        assert any(shown in content for _, content in BLOCKS)
    variables: dict[str, Any] = {"__name__": "recipes"}
    for (language, content), (kind, shown) in itertools.pairwise([*BLOCKS, ("sh", "")]):
        for written, meant in ours.items():
            content = content.replace(written, meant)  # noqa: PLW2901
        if language == "sh":
            for line in content.splitlines():
                command(line)
        elif language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(content, str(PAGE), "exec"), variables)
            assert printed.getvalue() == (shown if kind == "text" else ""), f"{content}printed\n{printed.getvalue()}"
    assert variables["spark"] is spark
    paid = [(1, Decimal("9.50")), (2, Decimal(20))]
    assert asyncio.run(payments(ours[DATABASE])) == paid
    command("sharequeue groups reset-offsets ledger --topic payments-in --to-earliest --execute")
    again = variables["run"](variables["payments"], "another")
    assert sum(progress.numInputRows for progress in again.recentProgress) == 2, "the records came again"
    assert asyncio.run(payments(ours[DATABASE])) == paid


async def payments(database: str) -> list[Any]:
    connection = await asyncpg.connect(database)
    try:
        return [tuple(row) for row in await connection.fetch("SELECT id, amount FROM payments ORDER BY id")]
    finally:
        await connection.close()
