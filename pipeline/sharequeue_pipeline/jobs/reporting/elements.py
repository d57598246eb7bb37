"""HTML from parts. Text is escaped where an element takes it in, so no caller can forget to do it.

`element("td", name, class_="n")` is `<td class="n">…</td>`. Only another element goes in as it is.
"""

import html
from collections.abc import Iterable
from typing import Final

from sharequeue_pipeline.jobs.reporting.texts import visible

MOST_SHOWN: Final = 64
"""Characters of a name."""
_EMPTY: Final = frozenset(("meta", "line", "path", "rect"))


class Element(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | None | Iterable["Content"]


def element(tag: str, *content: Content, **attributes: str | float | None) -> Element:
    """An element. A trailing `_` of an attribute's name is dropped, other ones become `-`; None leaves it out."""
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_escaped(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _EMPTY and not content:
        return Element(f"<{tag}{named}/>" if tag != "meta" else f"<{tag}{named}>")
    return Element(f"<{tag}{named}>{joined(content)}</{tag}>")


def joined(content: Content) -> Element:
    """Contents one behind the other: elements as they are, text escaped, None left out."""
    if content is None:
        return Element("")
    if isinstance(content, Element):
        return content
    if isinstance(content, str):
        return Element(_escaped(content))
    return Element("".join(joined(part) for part in content))


def foreign(text: str) -> Element:
    """A text of a user, whose direction of writing does not reach beyond it."""
    return element("bdi", text)


def name_of(name: str) -> Element:
    """The name of a topic or a group, within a line or two; hovering shows the whole of a long one."""
    if len(name) <= MOST_SHOWN:
        return foreign(name)
    return element("bdi", f"{name[: MOST_SHOWN - 21]}…{name[-20:]}", title=name)


def _escaped(text: str) -> str:
    return html.escape(visible(text))
