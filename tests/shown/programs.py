"""The programs of the project, in which code of a sentence stands: files that run, and the blocks of the pages."""

import re
from functools import cache
from pathlib import Path
from typing import Final

from tests.shown import BLOCK, PAGES, ROOT

FILES: Final = tuple(
    path.relative_to(ROOT).as_posix()
    for path in ROOT.rglob("*")
    if not {".git", ".venv", "node_modules"} & {*path.parts}
)
PROGRAMS: Final = (
    "sharequeue",
    "services",
    "pipeline",
    "sdks",
    "tests",
    "bench",
    "examples",
    "monitoring",
    "migrations",
)
ENDINGS: Final = {".py", ".sql", ".ts", ".mjs", ".go", ".java", ".yml", ".yaml", ".json", ".toml", ".mod", ".sh"}


def stands_in_a_program(code: str) -> bool:
    """Whether a block of a page or a file of the project has the code, with any spaces and breaks; `…` stands for up to
    99 characters, and `name()` for a call with any arguments."""
    wanted = "".join(re.sub(r"\(\)$", "(", code).split())
    return re.search(".{0,99}?".join(map(re.escape, wanted.strip("…").split("…"))), _programs()) is not None


@cache
def _programs() -> str:
    """All programs, without spaces."""
    files = [path for folder in PROGRAMS for path in (ROOT / folder).rglob("*") if _is_program(path)]
    files += [ROOT / name for name in ("Makefile", "Dockerfile", "docker-compose.yml", "mkdocs.yml", "pyproject.toml")]
    blocks = [block for page in PAGES for _, block in BLOCK.findall(page.read_text())]
    return "".join("".join(text.split()) + "\n" for text in [*(file.read_text() for file in files), *blocks])


def _is_program(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    ours = parts[:2] != ("tests", "shown") and not {"node_modules", "generated", "__pycache__"} & {*parts}
    return ours and path.suffix in ENDINGS and path.is_file()
