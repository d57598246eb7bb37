"""Whose transactions a caller may use, as SQL asks it. The log decides nothing about rights."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

ANY_OWNER: Final = "%"
"""Patterns that fit each transaction."""


class Owner(NamedTuple):
    """A caller, as the log knows it.

    `principal`: kept with what it begins; empty: it has none. `patterns`: of the transactions that it may use, for the
    SQL of `store.OWNED`.
    """

    principal: str = ""
    patterns: str = ANY_OWNER


ANYBODY: Final = Owner()


def owner_of(principal: str, names: Iterable[str], prefixes: Iterable[str], *, of_nobody: bool = True) -> Owner:
    """The owner of the transactions of a principal, and of those with these transactional ids, or such beginnings.

    `of_nobody`: also of transactions that began without a principal.
    """
    lines = ["p", f"p{_literal(principal)}"] if of_nobody else [f"p{_literal(principal)}"]
    lines += [f"i{_literal(name)}" for name in names]
    lines += [f"i{_literal(prefix)}%" for prefix in prefixes]
    return Owner(principal, "\n".join(lines))


def _literal(text: str) -> str:
    """A pattern of LIKE that fits this text. No text that is stored has a control character."""
    return re.sub(r"([\\%_])", r"\\\1", re.sub(r"[\0\n]", "\1", text))
