"""What docs/sdks.md tells the reader of a language to do: the files to copy, the commands to run, the example."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[1] / "docs/sdks.md"
EXAMPLE_URL: Final = "http://127.0.0.1:8080"


@dataclass(frozen=True)
class Section:
    """`files`: of the folder of the language, copied into an empty folder. `commands`: one a line, run there."""

    files: tuple[str, ...]
    commands: str
    example: str

    def commands_for(self, url: str) -> list[str]:
        """The commands with a gateway at `url`."""
        return self.commands.replace(EXAMPLE_URL, url).splitlines()


def section(language: str, page: str) -> Section:
    """Raises: ValueError: the page has no such section, or it does not have one block of commands and one example."""
    found = re.search(rf"^## {re.escape(language)}$(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f'docs/sdks.md has no section "## {language}"')
    text = found[1]
    commands = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    examples = re.findall(r"^```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if len(commands) != 1 or len(examples) != 1:
        counts = f"{len(commands)} blocks of commands and {len(examples)} examples"
        raise ValueError(f'docs/sdks.md, "## {language}": {counts}, not one of each')
    before = text.split("```", 1)[0]
    return Section(tuple(re.findall(r"\(\.\./sdks/\w+/([\w.-]+)\)", before)), commands[0], examples[0])
