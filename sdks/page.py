"""What docs/sdks.md tells the reader of a language to do: the files to copy, the commands, the program,
and what it prints."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[1] / "docs/sdks.md"
EXAMPLE_URL: Final = "http://127.0.0.1:8080"
EXAMPLE_TOPIC: Final = "orders"


@dataclass(frozen=True)
class Section:
    """`files`: of the folder of the language, copied into an empty folder. `commands`: one a line, run there before the
    program is saved. `running`: commands that run it."""

    files: tuple[str, ...]
    commands: str
    program: str
    running: str
    printed: str

    def commands_for(self, url: str) -> list[str]:
        """The commands with a gateway at `url`."""
        return self.commands.replace(EXAMPLE_URL, url).splitlines()

    def program_for(self, url: str, topic: str) -> str:
        """The program with a gateway at `url`, and a topic of its own."""
        return self.program.replace(EXAMPLE_URL, url).replace(f'"{EXAMPLE_TOPIC}"', f'"{topic}"')


def section(language: str, page: str) -> Section:
    """Raises: ValueError: the page has no such section, or it does not have its four blocks."""
    found = re.search(rf"^## {re.escape(language)}$(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f'docs/sdks.md has no section "## {language}"')
    text = found[1]
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    kinds = [kind if kind in ("", "text") else "program" for kind, _ in blocks]
    if kinds != ["", "program", "", "text"]:
        raise ValueError(
            f'docs/sdks.md, "## {language}": the blocks are {kinds}, not commands, program, commands, text'
        )
    before = text.split("```", 1)[0]
    files = tuple(re.findall(r"\(\.\./sdks/\w+/([\w.-]+)\)", before))
    return Section(files, *(content for _, content in blocks))
