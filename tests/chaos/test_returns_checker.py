"""The rules of the run in which topics return: right histories pass, and each rule notices its violation."""

import pytest

from tests.chaos.checker import report
from tests.chaos.history import Acknowledge, Fetch, Outcome, Produce, Range, Span
from tests.chaos.returns_checker import Alive, Begun, Deleted, Returns, Sized, Trimmed, WentBack, check

OLD, NEW = "id-old", "id-new"
"""The ids of a topic, and of the one that has its name later."""
FOREVER = float("inf")


class Writer:
    """Plays a story: verbs with an offset of one partition. The value of a record is 100 above its offset, or given."""

    def __init__(self, story: str) -> None:
        self.now_s = 0.0
        self.copied = Span(0, 0)
        self.log: dict[int, int] = {}
        self.history = Returns(limit=100, lock_s=2.0, groups=("billing",))
        self.history.alive.append(Alive(Span(0, FOREVER), "orders", OLD))
        for step in story.split("; "):
            verb, *arguments = step.split()
            getattr(self, verb)(*(int(argument) if argument.isdigit() else argument for argument in arguments))
        topic_id = self.history.alive[-1].topic_id
        self.history.log = {(topic_id, 0): self.log}
        for gateway in ("gateway-0", "gateway-1"):
            self.history.logs.setdefault(gateway, self.history.log)
        for group in (*self.history.groups, *self.history.latest):
            self.history.lags.setdefault((group, topic_id, 0), 0)

    def span(self) -> Span:
        self.now_s += 1
        return Span(self.now_s - 0.9, self.now_s)

    def produce(self, offset: int, value: int | None = None) -> None:
        self.log[offset] = offset + 100 if value is None else value
        self.history.produced.append(
            Produce(self.span(), "orders", (self.log[offset],), Outcome.OK, ((0, offset),)),
        )

    def refused(self, offset: int) -> None:
        self.history.produced.append(Produce(self.span(), "orders", (offset + 100,), Outcome.REFUSED))

    def fetch(self, offset: int, value: int | None = None, group: str = "billing", topic_id: str = OLD) -> None:
        range_ = Range(topic_id, 0, offset, offset, 1, ((offset, offset + 100 if value is None else value),))
        self.history.fetched.append(Fetch(self.span(), group, "m", None, "gateway-0", Outcome.OK, (range_,)))

    def accept(self, offset: int, topic_id: str = OLD, status: str = "applied", group: str = "billing") -> None:
        ack = Acknowledge(self.span(), group, "m", topic_id, 0, offset, offset, 1, ("accept",), "gateway-0", status)
        self.history.acknowledged.append(ack)

    def through(self, offset: int, topic_id: str = OLD) -> None:
        self.produce(offset)
        self.fetch(offset, topic_id=topic_id)
        self.accept(offset, topic_id)

    def ask(self) -> None:
        """Ask a group to begin at `latest`."""
        self.history.latest["latest-0"] = self.now_s

    def begin(self) -> None:
        self.ask()
        self.history.begun.append(Begun(self.span(), "latest-0", OLD, 0))

    def first_sight(self) -> None:
        """A group at `latest` begins in another partition; the topic gets this one later."""
        self.ask()
        self.history.begun.append(Begun(self.span(), "latest-0", OLD, 1))
        self.history.sized.append(Sized(self.span(), OLD, 1))

    def late(self, offset: int) -> None:
        """The group at `latest` gets a record."""
        self.fetch(offset, group="latest-0")
        self.accept(offset, group="latest-0")

    def remake(self) -> None:
        self.history.alive[0] = self.history.alive[0]._replace(span=Span(0, self.now_s))
        self.history.deleted.append(Deleted(self.span(), OLD))
        self.history.alive.append(Alive(Span(self.now_s, FOREVER), "orders", NEW))
        self.log.clear()

    def trim(self, before_offset: int) -> None:
        self.history.trimmed.append(Trimmed(self.span(), OLD, 0, before_offset, seen_s=self.now_s))
        self.log = {offset: value for offset, value in self.log.items() if offset >= before_offset}

    def copy(self) -> None:
        self.copied = self.span()

    def restore(self) -> None:
        self.history.went_back.append(WentBack(self.copied, self.span()))

    def lose(self, offset: int) -> None:
        del self.log[offset]

    def differ(self) -> None:
        self.history.logs["gateway-1"] = {(OLD, 0): {}}

    def lag(self) -> None:
        self.history.lags["billing", OLD, 0] = 1


WENT_BACK = "through 0; produce 1; copy; fetch 1; accept 1; through 2; lose 2; restore"
"""An acceptance and a record are lost."""
RIGHT = (
    f"through 0; through 1; remake; through 0 {NEW}; accept 1 {OLD} failed",
    "through 0; produce 1; trim 2; through 2",
    "through 0; begin; through 1; late 1",
    "first_sight; through 0; late 0",
    f"{WENT_BACK}; fetch 1; accept 1; through 9",
)
PLANTED = (
    ("identical", "through 0; fetch 1 100"),
    ("identical", f"{WENT_BACK}; fetch 1; accept 1; produce 2 7; fetch 2 7; accept 2"),
    ("produced", "refused 0; fetch 0"),
    ("produced", f"through 0; remake; fetch 0 100 billing {NEW}"),
    ("durable", "through 0; through 1; lose 1"),
    ("durable", f"{WENT_BACK}; fetch 1; accept 1; through 9; lose 9"),
    ("one log", "through 0; differ"),
    ("finished", "through 0; remake; produce 0"),
    ("finished", "through 0; lag"),
    ("finished", WENT_BACK),
    ("latest", "through 0; begin; late 0"),
    ("latest", "begin; through 0"),
    ("latest", "ask; through 0; late 0; through 1"),
    ("latest", "first_sight; through 0"),
    ("settled", "through 0; fetch 0"),
    ("old id", "through 0; remake; accept 0"),
    ("trimmed", "produce 0; trim 1; fetch 0"),
)


@pytest.mark.parametrize("story", RIGHT)
def test_a_right_history_passes(story: str) -> None:
    history = Writer(story).history
    violations = check(history)
    assert not violations, report(history, violations)


@pytest.mark.parametrize(("rule", "story"), PLANTED)
def test_a_planted_violation_is_noticed(rule: str, story: str) -> None:
    assert {violation.rule for violation in check(Writer(story).history)} == {rule}
