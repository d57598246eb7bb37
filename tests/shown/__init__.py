"""What a page shows as code works as it is shown: nothing on a page is only looked at.

    a block       one test runs it: `RUN_BY` names the test. A block without a program is a picture, or what is printed
    in a sentence each piece of code has a kind, and a check of its kind: `kinds.py` has the table

A page, a language of a block, or code of no kind is new, so it fails here until somebody says who runs it.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
)
BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE: Final = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


class Wrong(Exception):
    """Something does not work as it is shown."""


def sentences(text: str) -> Iterator[str]:
    """The code within the sentences and tables of a page, each in one line."""
    yield from (" ".join(code.split()) for _, code in INLINE.findall(BLOCK.sub("", text)))


def pieces(text: str) -> Iterator[str]:
    """What a page shows as commands: the lines of its blocks of commands, and the code within its sentences."""
    for language, block in BLOCK.findall(text):
        if language in ("", "sh"):
            yield from block.replace("\\\n", " ").splitlines()
    yield from sentences(text)
