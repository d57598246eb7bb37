"""The promises of transactions: one outcome, and what readers of committed records see of it. Pure.

What became of a transaction is what answers told of it, the last ones at the end of the run, when none is open.
"""

from collections import defaultdict
from collections.abc import Iterator

from tests.chaos.history import Outcome, Place
from tests.chaos.lives import Known, Violation


def one_outcome(known: Known) -> Iterator[Violation]:
    """All answers tell the same end of a transaction; none is taken back; one that has records is never forgotten."""
    written = _places(known)
    for transaction, ends in known.ends.items():
        place = min((place for place, _ in written[transaction]), default=None)
        told = {end.state for end in ends} & {"committed", "aborted"}
        if len(told) > 1:
            yield Violation("outcome", "", place, f"{transaction} was told committed and aborted")
        ended_s = min((end.span.ended_s for end in ends if end.state in told), default=None)
        for end in ends:
            if end.state == "open" and ended_s is not None and end.span.started_s > ended_s:
                yield Violation("outcome", "", place, f"{transaction} is open after its end was told")
            if end.state == "forgotten" and place is not None:
                yield Violation("outcome", "", place, f"{transaction} has records and is not known")
        if place is not None and not told:
            yield Violation("outcome", "", place, f"what became of {transaction} was never told")
        if "committed" in told and all(end.wish != "commit" for end in ends):
            yield Violation("outcome", "", place, f"{transaction} is committed, and nobody asked for it")
    for produce in known.history.produced:
        ended_s = min(
            (end.span.ended_s for end in known.ends.get(produce.transaction or "", ()) if _ended(end.state)),
            default=None,
        )
        if produce.outcome is Outcome.OK and ended_s is not None and produce.span.started_s > ended_s:
            text = f"{produce.values} went to transaction {produce.transaction} after its end was told"
            yield Violation("late", "", (produce.topic, *produce.places[0]), text)


def committed_groups_get_what_is_committed(known: Known) -> Iterator[Violation]:
    """A read_committed group gets no record of a transaction before its commit was asked for,
    and none of an aborted one."""
    asked_s = _asked_s(known)
    for fetch in known.history.fetched:
        if fetch.group not in known.history.committed_groups:
            continue
        for range_ in fetch.ranges:
            for offset, value in range_.values:
                transaction = known.transaction_of.get(value)
                if transaction is None:
                    continue
                place = (range_.topic, range_.partition, offset)
                if known.aborted(value):
                    yield Violation(
                        "aborted", fetch.group, place, f"delivered, of {transaction}, which was not committed"
                    )
                elif fetch.span.ended_s < asked_s.get(transaction, 0.0):
                    yield Violation("undecided", fetch.group, place, f"delivered before {transaction} was committed")
    for letter in known.history.dead_letters:
        value = known.history.log.get((letter.topic, letter.partition), {}).get(letter.offset)
        if letter.group in known.history.committed_groups and known.aborted(value):
            yield Violation("aborted", letter.group, letter.place, "dead-lettered, and never committed")


def committed_reads_are_whole(known: Known) -> Iterator[Violation]:
    """A read of committed records has all of them up to where it ends, and no other; no transaction is seen in part.

    A transaction that was seen in one partition does not hold back a later read of another one.
    """
    asked_s = _asked_s(known)
    for read in known.history.committed_reads:
        log = known.history.log.get((read.topic, read.partition), {})
        seen = dict(read.values)
        for offset in range(read.offset, read.end_offset):
            place = (read.topic, read.partition, offset)
            value = log.get(offset)
            if value is None or known.aborted(value):
                if offset in seen:
                    yield Violation("aborted", "", place, f"{seen[offset]} was read as committed; in the log: {value}")
            elif seen.get(offset) != value:
                text = f"a committed read to {read.end_offset} has {seen.get(offset)} there, the log has {value}"
                yield Violation("torn", "", place, text)
            elif read.span.ended_s < asked_s.get(known.transaction_of.get(value, ""), 0.0):
                yield Violation("undecided", "", place, f"{value} was read before its commit was asked for")
    yield from _held_by_what_was_seen(known)


def _held_by_what_was_seen(known: Known) -> Iterator[Violation]:
    """Reads that find nothing where a transaction begins which an earlier read has shown."""
    seen_s: dict[str, float] = {}
    for read in known.history.committed_reads:
        for _, value in read.values:
            transaction = known.transaction_of.get(value)
            if transaction is not None:
                seen_s[transaction] = min(seen_s.get(transaction, read.span.ended_s), read.span.ended_s)
    first: dict[Place, str] = {}
    for transaction, places in _places(known).items():
        lowest: dict[tuple[str, int], int] = {}
        for (topic, partition, offset), _ in places:
            lowest[topic, partition] = min(offset, lowest.get((topic, partition), offset))
        first.update({(*where, offset): transaction for where, offset in lowest.items()})
    for read in known.history.committed_reads:
        place = (read.topic, read.partition, read.end_offset)
        transaction = first.get(place)
        if read.offset < read.end_offset:
            continue  # it need not tell how far the reader may go: the next one does
        if transaction is not None and read.span.started_s > seen_s.get(transaction, float("inf")):
            text = f"a committed read finds nothing at {transaction}, which was seen in another partition before"
            yield Violation("torn", "", place, text)


def _asked_s(known: Known) -> dict[str, float]:
    """When the commit of each transaction was first asked for."""
    asked_s: dict[str, float] = {}
    for transaction, ends in known.ends.items():
        asked_s[transaction] = min((end.span.started_s for end in ends if end.wish == "commit"), default=float("inf"))
    return asked_s


def _ended(state: str) -> bool:
    return state in ("committed", "aborted")


def _places(known: Known) -> dict[str, list[tuple[Place, int]]]:
    """Where the records of each transaction are, with their values."""
    places: dict[str, list[tuple[Place, int]]] = defaultdict(list)
    for (topic, partition), log in known.history.log.items():
        for offset, value in log.items():
            if (transaction := known.transaction_of.get(value)) is not None:
                places[transaction].append(((topic, partition, offset), value))
    return places


VISIBILITY = (one_outcome, committed_groups_get_what_is_committed, committed_reads_are_whole)
