"""Metrics with many series: plain numbers, written in slices, so that a scrape does not stop the event loop.

prometheus_client writes 100,000 series a second without a pause, and counts each series of a counter twice.
"""

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, TypeVar

MOST_SERIES: Final = 5000
"""Most series of one family in a scrape; beyond it, the ones with the highest numbers."""

_MARKDOWN: Final = re.compile(r"`|\[([^]]*)\]\([^)]*\)")

Labels = tuple[str, ...]
V = TypeVar("V", str, Labels)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric whose series are made for each scrape. `kind`: counter or gauge;
    the name of a counter ends in `_total`."""

    name: str
    kind: str
    meaning: str
    labels: Labels = ()

    @property
    def head(self) -> str:
        return plain(f"# HELP {self.name} {self.meaning}\n# TYPE {self.name} {self.kind}\n")

    def line(self, number: float, values: Labels = ()) -> str:
        """One sample; labels in the order of their names, as prometheus_client has them."""
        pairs = ",".join(f'{label}="{_escaped(each)}"' for label, each in sorted(zip(self.labels, values, strict=True)))
        return f"{self.name}{{{pairs}}} {float(number)}\n" if values else f"{self.name} {float(number)}\n"

    def lines(self, samples: Iterable[tuple[float, Labels]]) -> Iterator[str]:
        """The family as Prometheus reads it: numbers with the values of their labels."""
        yield self.head
        for number, values in samples:
            yield self.line(number, values)


class Count:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, by: int = 1) -> None:
        self.value += by


class Counts(dict[V, Count]):
    """A counter's series by the values of its labels; by the value itself where there is one label."""

    def __init__(self, name: str, meaning: str, labels: Sequence[str]) -> None:
        self.family = Family(f"{name}_total", "counter", meaning, tuple(labels))

    def __missing__(self, values: V) -> Count:
        count = self[values] = Count()
        return count

    def forget(self, values: V) -> None:
        """Drop a series whose subject is gone."""
        self.pop(values, None)

    def lines(self) -> Iterator[str]:
        numbers = [(count.value, values if isinstance(values, tuple) else (values,)) for values, count in self.items()]
        return self.family.lines(most(numbers))


def most(numbers: Sequence[tuple[int, Labels]]) -> Iterable[tuple[int, Labels]]:
    """The MOST_SERIES entries with the highest numbers."""
    return numbers if len(numbers) <= MOST_SERIES else heapq.nlargest(MOST_SERIES, numbers, key=itemgetter(0))


def plain(text: str) -> str:
    """A text without Markdown: its links and quotes are for docs/metrics.md."""
    return _MARKDOWN.sub(r"\1", text)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
