"""What MkDocs must know of this repository: pages and files outside of docs/, and the list of decisions.

On a forge a page may link to any file of the repository. The site has only docs/, ARCHITECTURE.md and the files that
pages link to by `../`: they are copied, and the links follow them.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[1]
DECISIONS: Final = "decisions/"
PAGES: Final = ("ARCHITECTURE.md",)
_LINK: Final = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Give each decision its place in the navigation: new ones too."""
    pages = [f"{DECISIONS}{path.name}" for path in sorted((ROOT / "docs" / DECISIONS).glob("*.md"))]
    config.nav = _with_decisions(config.nav, pages)
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages outside of docs/, and the files that pages link to."""
    wanted = set(PAGES)
    for file in files.documentation_pages():
        for target, _ in _LINK.findall(file.content_string):
            place = _outside(file.src_uri, target)
            if place is not None and (ROOT / place).is_file():
                wanted.add(place)
    for place in sorted(wanted):
        files.append(File.generated(config, place, abs_src_path=str(ROOT / place)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Lead the links out of docs/, and those into it from a page that lies outside, to their places on the site."""
    source = page.file.src_uri

    def moved(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        place = target.removeprefix("docs/") if source in PAGES else _outside(source, target)
        if place is None:
            return found[0]
        return f"]({posixpath.relpath(place, posixpath.dirname(source) or '.')}{anchor})"

    return _LINK.sub(moved, markdown)


def _outside(source: str, target: str) -> str | None:
    """The place in the repository of a link from a page of docs/, if it is outside of docs/."""
    if "://" in target:
        return None
    place = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), target))
    return None if place.startswith("docs/") else place


def _with_decisions(nav: Any, pages: list[str]) -> Any:
    if isinstance(nav, list):
        return [_with_decisions(entry, pages) for entry in nav]
    if isinstance(nav, dict):
        return {title: pages if part == DECISIONS else _with_decisions(part, pages) for title, part in nav.items()}
    return nav
