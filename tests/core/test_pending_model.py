"""Any order of fetches, holds, decisions, their application, ends of locks and loads: what a commit settles stays
settled, what is pending goes to nobody, and all else is delivered in the end."""

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sharequeue.protocol.types import DeliveryState, SettledBatch
from tests.core.share_partition_driver import fetched
from tests.core.test_pending import Settling
from tests.examples import examples

MEMBERS = ("M1", "M2")
steps = st.one_of(
    st.tuples(st.sampled_from(("fetch", "hold", "accept")), st.sampled_from(MEMBERS)),
    st.tuples(st.just("decide"), st.booleans()),
    st.tuples(st.just("apply"), st.none()),
    st.tuples(st.just("later"), st.sampled_from((1000, 31_000))),
    st.tuples(st.just("load"), st.booleans()),
)


class Model:
    """One share-partition, the log that decides about its transactions, and what must hold."""

    def __init__(self) -> None:
        self.group = Settling(fetched("[0-9]", delivery_count_limit=100))
        self.seen = 0
        self.open: dict[str, list[SettledBatch]] = {}
        self.decided: dict[str, list[SettledBatch]] = {}
        self.settled: set[int] = set()
        self.begun = 0

    def store(self) -> None:
        for write in self.group.driver.writes[self.seen :]:
            self.group.store(write)
        self.seen = len(self.group.driver.writes)

    def pending(self) -> set[int]:
        """What waits for a transaction that is open, or that was decided and is not applied."""
        batches = [batch for of in (*self.open.values(), *self.decided.values()) for batch in of]
        return {offset for batch in batches for offset in range(batch.first_offset, batch.last_offset + 1)}

    def held(self, member: str) -> tuple[int, int, int] | None:
        """The first range that a member may settle, and its delivery count."""
        for run in self.group.machine.runs:
            if run.state is DeliveryState.ACQUIRED and run.write is None and run.member_id == member:
                return run.first, run.last, run.delivery_count
        return None

    def fetch(self, member: str) -> set[int]:
        text = self.group.driver.fetch("[0-9]", member, max=4, rl=True)
        found = {
            offset for first, last in re.findall(r"(\d+)-(\d+)×", text) for offset in range(int(first), int(last) + 1)
        }
        assert not found & self.settled, "a settled record is delivered"
        assert not found & {o for name in self.open for b in self.open[name] for o in range(b[0], b[1] + 1)}
        return found

    def step(self, what: str, how: Any) -> None:
        driver = self.group.driver
        if what == "fetch":
            self.fetch(how)
        elif what == "hold" and (held := self.held(how)) is not None:
            self.begun += 1
            name = f"t-{self.begun}"
            first, last, count = held
            last = min(last, first + 1)
            self.open[name] = self.group.hold(f"{first}-{last} Acc", transaction=name, member=how, count=count)
        elif what == "accept" and (held := self.held(how)) is not None:
            first, last, count = held
            driver.ack(f"{first}-{first} Acc", member=how, count=count)
            self.settled.add(first)
        elif what == "decide" and self.open:
            name, batches = self.open.popitem()
            self.decided[name] = batches if how else []
            if how:
                self.settled |= {offset for b in batches for offset in range(b.first_offset, b.last_offset + 1)}
        elif what == "apply":
            for name, batches in self.decided.items():
                self.group.resolve(batches, name)
            self.decided = {}
        elif what == "later":
            driver.later(how)
        elif what == "load":
            self.group = self.group.load_again(locks=how)
            self.seen = 0
        self.store()


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(steps, max_size=40))
def test_what_is_committed_is_settled_once_and_the_rest_is_delivered(sequence: list[tuple[str, Any]]) -> None:
    model = Model()
    for what, how in sequence:
        model.step(what, how)
        machine = model.group.machine
        pending = {offset for run in machine.runs if run.write is not None for offset in range(run.first, run.last + 1)}
        waiting = {o for o in model.pending() if o >= machine.start_offset}
        assert waiting <= pending, "it waits for its transaction"
    while model.open:
        model.step("decide", False)
    model.step("apply", None)
    model.step("later", 31_000)
    left: set[int] = set()
    while found := model.fetch("M9"):
        left |= found
    assert left == set(range(10)) - model.settled
    assert model.group.machine.holds == {}
    assert all(note.transaction_id is None for note in model.group.stored.annotations()), "nothing waits for ever"
