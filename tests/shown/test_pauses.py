"""Loops of the product wait by `sharequeue/repeats.py`: a rule of its table, or the turns of `Every`."""

import ast
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = ("sharequeue", "sharequeue_http", "sharequeue_kafka", "services", "pipeline")
OTHERS: Final = {
    "sharequeue/repeats.py": "the mechanism",
    "sharequeue/slices.py": "a piece of work that leaves time for others",
    "sharequeue/cli/up.py": "the main thread watches the processes, and stops on a signal",
    "sharequeue/worker/supervisor.py": "the main thread watches the processes, and stops on a signal",
    "sharequeue/cli/groups/redrive.py": "a rate that the user gave",
    "sharequeue/client/consuming/polling.py": "a poll without partitions lasts as long as the caller said",
    "sharequeue_http/application/pace.py": "one delay, of a refusal: this import root knows no other",
    "sharequeue_http/calling/caller.py": "the repeats of calls: this import root knows no other",
    "sharequeue_http/wire/edge.py": "the watch of connections: this import root knows no other",
    "sharequeue_kafka/connections.py": "the repeats of requests: this import root knows no other",
    "services/gateway/sharequeue_gateway/cluster/cluster.py": "one delay: calls to a gateway that left may still end",
    "services/gateway/sharequeue_gateway/routing/sessions.py": "one delay, which slows a client that is refused",
}
"""Files that sleep otherwise, once each unless the file is the mechanism, and why."""


def sleeps(source: str) -> list[int]:
    """The lines that name a function that sleeps. Giving way, `asyncio.sleep(0)`, is none."""
    nodes = list(ast.walk(ast.parse(source)))
    gives_way = [
        node.func for node in nodes if isinstance(node, ast.Call) and list(map(ast.unparse, node.args)) == ["0"]
    ]
    return sorted(
        node.lineno
        for node in nodes
        if (isinstance(node, ast.Attribute) and node.attr == "sleep" and node not in gives_way)
        or (isinstance(node, ast.ImportFrom) and "sleep" in [name.name for name in node.names])
    )


def test_loops_wait_by_the_one_mechanism() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (lines := sleeps(path.read_text()))
    }
    assert found.keys() == OTHERS.keys()
    assert {path for path, lines in found.items() if len(lines) > 1} == {"sharequeue/repeats.py"}


def test_each_way_to_sleep_is_found() -> None:
    source = "await asyncio.sleep(0)\nawait asyncio.sleep(0.5)\nwait = time.sleep\nfrom time import sleep"
    assert sleeps(source) == [2, 3, 4]
