"""Which worker runs which test module, and in which order, when pytest-xdist runs modules side by side.

    tests/pipeline/test_sink.py ───┐
    tests/pipeline/test_source.py ─┴─▶ one file for the scheduler ─▶ worker 1: one Spark, one stack
    tests/system/test_up.py ─────────▶ a file of its own ──────────▶ worker 2
    tests/http/test_topics.py ───────▶ a file of its own ──────────▶ worker 3 …

Modules start stacks of their own, so one worker runs all tests of a module: `--dist loadfile` does that. Spark takes
seconds to start, so one worker runs all modules that need it. Slow modules begin first: otherwise one worker would
still run them when the others are done.
"""

from collections.abc import Sequence
from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SPARK: Final = "tests/pipeline/"
WITHOUT_SPARK: Final = frozenset(
    f"{SPARK}test_{part}.py"
    for part in ("columns", "imports", "java", "options", "own_directory", "readers", "report_page", "rows")
)
ORDER: Final = (
    SPARK,
    *(f"tests/{folder}/" for folder in ("system", "packages", "cluster", "http", "storage", "chaos", "shell", "core")),
    "",
)
"""Prefixes of test ids; the empty one stands for all others."""


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests in the order of their folders."""
    return sorted(items, key=lambda item: next(n for n, begin in enumerate(ORDER) if item.nodeid.startswith(begin)))


def as_scheduled(nodeid: str) -> str:
    """The id under which the scheduler knows a test: the text before `::` is its file."""
    needs_spark = nodeid.startswith(SPARK) and nodeid.partition("::")[0] not in WITHOUT_SPARK
    return f"{SPARK}::{nodeid}" if needs_spark else nodeid


class SparkOnOneWorker(LoadFileScheduling):
    """`--dist loadfile` that takes all modules with Spark for one file. Workers get tests by number, not by id."""

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        super().add_node_collection(node, [as_scheduled(nodeid) for nodeid in collection])
