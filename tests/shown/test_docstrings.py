"""A docstring of the product begins with a verb, or names the thing."""

import ast
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = ("sharequeue", "sharequeue_http", "sharequeue_kafka", "services", "pipeline")
HEADLESS: Final = frozenset(
    [
        "What",
        "Whatever",
        "How",
        "Those",
        "These",
        "This",
        "That",
        "It",
        "Whether",
        "Who",
        "Whoever",
        "Which",
        "Why",
        "Where",
        "When",
        "Each",
    ]
)


def headless(source: str) -> list[str]:
    """The docstrings that begin with a word which is neither a verb nor a name."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    texts = [ast.get_docstring(node) for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    return [text for text in texts if text and text.split()[0].rstrip(",.:") in HEADLESS]


def test_docstrings_begin_with_a_verb_or_a_name() -> None:
    paths = [path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {str(path.relative_to(ROOT)): texts for path in paths if (texts := headless(path.read_text()))}
    assert not found


def test_a_docstring_without_a_head_is_found() -> None:
    assert headless('"""Whether it is."""\ndef f():\n    """How many?"""\ndef g():\n    """Wait."""') == [
        "Whether it is.",
        "How many?",
    ]
