"""What docs/sdks.md tells the reader to do: the commands before all languages, and for each language the files that
it copies, the commands, the program, and what it prints; and the code between these blocks."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs/sdks.md"
NAMES: Final = {'"orders"': '"orders-{}"', '"billing"': '"billing-{}"', "dlq.billing": "dlq.billing-{}"}
"""The topic and the groups of the page: each language has its own on the stack that all of them share."""


@dataclass(frozen=True)
class Section:
    """`files`: of the folder of the language. `commands`: one a line, run in an empty folder before the program is
    saved as `saved_as`. `running`: commands that run it."""

    files: tuple[str, ...]
    saved_as: str
    commands: str
    program: str
    running: str
    printed: str


def commands_in(folder: Path, commands: str) -> list[str]:
    """The commands without those that make the folder and go there, since they would have to share a shell."""
    first, second, *more = commands.splitlines()
    if (first, second) != (f"mkdir {folder.name}", f"cd {folder.name}"):
        raise ValueError(f"docs/sdks.md: {first!r} and {second!r} do not make the folder {folder.name}")
    return more


def begin(page: str, name: str) -> str:
    """The last command before all languages: a backoff for the group of the language `name`."""
    (setting,) = re.findall(r"^curl (?:.*\\\n)*.*$", _text("Begin", page), re.MULTILINE)
    return re.sub(r"/share-groups/billing/", f"/share-groups/billing-{name}/", setting)


def section(language: str, page: str, name: str = "") -> Section:
    """The section of a language; with `name`, its topics and groups end in it.

    Raises: ValueError: the page has no such section, or it does not have its four blocks.
    """
    text = _text(language, page)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    kinds = [kind if kind in ("", "text") else "program" for kind, _ in blocks]
    if kinds != ["", "program", "", "text"]:
        raise ValueError(
            f'docs/sdks.md, "## {language}": the blocks are {kinds}, not commands, program, commands, text'
        )
    files = tuple(re.findall(r"\(\.\./sdks/\w+/([\w.-]+)\)", text.split("```", 1)[0]))
    (saved_as,) = re.findall(r"^Save this as `(.*)` in the folder:$", text, re.MULTILINE)
    return Section(files, saved_as, *(renamed(content, name) for _, content in blocks))


def others(page: str) -> str:
    """The commands of the generators that have no section of their own."""
    (commands,) = re.findall(r"^```\n(.*?)^```$", _text("Other languages", page), re.MULTILINE | re.DOTALL)
    return str(commands)


def creating(page: str, name: str) -> str:
    """The command that creates the topic `orders`, with a name that ends in `name`."""
    (command,) = re.findall(r"`(curl [^`]*/v1/topics\"[^`]*)`", _text("The files that you copied", page))
    return renamed(command, name)


def code_between_blocks(page: str) -> list[tuple[str, str]]:
    """The code in backquotes outside of the blocks, without plain names. In a row of a table that begins with a
    language, names are code, too: such a table shows what to write.

    Returns: the title of the section, or the language of the row; and the code.
    """
    found: list[tuple[str, str]] = []
    for part in re.split(
        r"^## ", re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL), flags=re.MULTILINE
    ):
        title = part.partition("\n")[0]
        rows = re.findall(r"^\| ([A-Z]\w+) \| (.*)$", part, re.MULTILINE)
        found += [(language, code) for language, cells in rows for code in re.findall("`([^`]+)`", cells)]
        text = re.sub(r"^\|.*$", "", part, flags=re.MULTILINE)
        found += [(title, code) for code in re.findall("`([^`]+)`", text) if not re.fullmatch(r"[\w./-]+", code)]
    return found


def holds(source: str, code: str) -> bool:
    """Whether a source has the code, with any spaces and breaks; `…` stands for up to 99 characters."""
    bare, wanted = "".join(source.split()), "".join(code.split())
    return re.search(".{1,99}?".join(map(re.escape, wanted.split("…"))), bare) is not None


def renamed(text: str, name: str) -> str:
    """The text with topics and groups that end in `name`."""
    for shown, own in NAMES.items() if name else ():
        text = text.replace(shown, own.format(name))
    return text


def matches(shown: str, printed: str) -> bool:
    """Whether commands printed at their end what the page shows, where `…` stands for anything in a line."""
    return re.search(".*".join(map(re.escape, shown.strip().split("…"))) + r"\Z", printed.strip()) is not None


def _text(title: str, page: str) -> str:
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f'docs/sdks.md has no section "## {title}"')
    return found[1]
