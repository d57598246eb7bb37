"""The programs of the project, in which code of a sentence stands: files that run, and the blocks of the pages."""

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

from tests.shown import BLOCK, PAGES, ROOT

PROGRAMS: Final = (
    "sharequeue",
    "sharequeue_http",
    "sharequeue_kafka",
    "services",
    "pipeline",
    "sdks",
    "tests",
    "bench",
    "examples",
    "monitoring",
    "migrations",
)
PLAIN: Final = {"Makefile", "Dockerfile", "docker-compose.yml", "mkdocs.yml", "pyproject.toml"}
MADE: Final = {"__pycache__", "dist"}
ENDINGS: Final = {".py", ".sql", ".ts", ".mjs", ".go", ".java", ".yml", ".yaml", ".json", ".toml", ".mod", ".sh"}


def _files() -> Iterator[str]:
    """The paths of all files of the project, none that a tool has made."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in MADE]
        yield from (Path(folder, name).relative_to(ROOT).as_posix() for name in names)


FILES: Final = tuple(_files())


def stands_in_a_program(code: str) -> bool:
    """Whether a block of a page or a file of the project has the code, with any spaces and breaks; `…` stands for up to
    99 characters, and `name()` for a call with any arguments."""
    wanted = "".join(re.sub(r"\(\)$", "(", code).split())
    return re.search(".{0,99}?".join(map(re.escape, wanted.strip("…").split("…"))), _programs()) is not None


@cache
def _programs() -> str:
    """All programs, without spaces."""
    files = [name for name in FILES if name in PLAIN or _is_program(PurePosixPath(name))]
    blocks = [block for page in PAGES for _, block in BLOCK.findall(page.read_text())]
    return "".join("".join(text.split()) + "\n" for text in [*((ROOT / name).read_text() for name in files), *blocks])


def _is_program(path: PurePosixPath) -> bool:
    return path.parts[0] in PROGRAMS and path.parts[:2] != ("tests", "shown") and path.suffix in ENDINGS
