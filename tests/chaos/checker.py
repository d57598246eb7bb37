"""Whether a history keeps every promise of the service. Pure: a history in, violations out.

What the rules conclude from time is sound whatever happened between a request and its answer: something asked for is
not done before the request was sent, and something answered is done before the answer came.

A reset gives a group's records another life; what overlaps it belongs to none and proves nothing. A gateway that dies
while it goes on without Redis loses its locks: around such windows counts may come again, once for each.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Final

from tests.chaos.history import Acknowledge, History, Outcome, Place, Produce
from tests.chaos.lives import Delivery, Known, RecordLife, Settlement, Violation
from tests.chaos.visibility import VISIBILITY

INVALID_RECORD_STATE: Final = 121
EARLY_S: Final = 0.05
"""How much earlier than promised a record may be delivered: gateways know PostgreSQL's clock that well."""
TERMINAL: Final = frozenset({"accept", "reject", "gap"})

Rule = Callable[[Known], Iterator[Violation]]


def produced_is_kept(known: Known) -> Iterator[Violation]:
    """An answered produce is in the log where it was answered; a refused one is not; a request is whole; all once."""
    history = known.history
    found: dict[int, list[Place]] = defaultdict(list)
    for (topic, partition), values in history.log.items():
        for offset, value in values.items():
            found[value].append((topic, partition, offset))
    asked: dict[tuple[int, ...], list[Produce]] = defaultdict(list)
    for produce in history.produced:
        asked[produce.values].append(produce)
    for values, tries in asked.items():
        there = [value for value in values if value in found]
        if 0 < len(there) < len(values):
            yield Violation("atomic", "", None, f"of the request {values} only {there} are in the log")
        if there and all(one.outcome is Outcome.REFUSED for one in tries):
            yield Violation("refused", "", found[there[0]][0], f"{there} were refused and are in the log")
        for one in tries:
            for value, (partition, offset) in zip(values, one.places, strict=False):
                if found[value] != [(one.topic, partition, offset)]:
                    text = f"{value} was answered at {(one.topic, partition, offset)}; in the log: {found[value]}"
                    yield Violation("durable", "", (one.topic, partition, offset), text)
    known_values = {value for values in asked for value in values}
    for value, places in found.items():
        if len(places) > 1:
            yield Violation("once", "", places[0], f"{value} is in the log {len(places)} times: {places}")
        if value not in known_values:
            yield Violation("durable", "", places[0], f"nobody produced {value}")
    for (topic, partition), log in () if history.in_kafka else history.log.items():
        markers = {known.transaction_of[value] for value in log.values() if value in known.transaction_of}
        end = history.end_of(topic, partition)
        if end != len(log) + len(markers):
            text = f"the log ends at {end}, with {len(log)} records and {len(markers)} ends of transactions"
            yield Violation("dense", "", (topic, partition, 0), text)


def delivered_is_produced(known: Known) -> Iterator[Violation]:
    """A delivered record is the record of the log at its offset, and a range has all of its records."""
    for fetch in known.history.fetched:
        for range_ in fetch.ranges:
            place = (range_.topic, range_.partition, range_.first_offset)
            if [offset for offset, _ in range_.values] != list(range(range_.first_offset, range_.last_offset + 1)):
                yield Violation("whole", fetch.group, place, f"a range without all of its records: {range_}")
            log = known.history.log.get((range_.topic, range_.partition), {})
            for offset, value in range_.values:
                if log.get(offset) != value:
                    text = f"{value} was delivered, the log holds {log.get(offset)}"
                    yield Violation("identical", fetch.group, (range_.topic, range_.partition, offset), text)


def counts_rise(known: Known) -> Iterator[Violation]:
    """Counts of a record strictly rise; only a repeat of a fetch brings the same one, and none is above the limit.

    A delivery that was never begun does not count for the limit, nor one that no client saw.
    """
    for life in known.lives.values():
        limit = known.history.limit + min(life.never_begun, known.history.limit)
        deliveries = life.deliveries
        for delivery in deliveries:
            most = known.history.limit + known.forgiven(life, delivery)
            if not 1 <= delivery.count <= most:
                yield life.violation("limit", f"delivery count {delivery.count}, the limit is {most}")
        for one, other in combinations(deliveries, 2):
            first_s = min(one.asked_s, other.asked_s)
            if known.without_redis(first_s, max(one.span.ended_s, other.span.ended_s)):
                continue
            if one.count == other.count and not one.same_fetch(other):
                yield life.violation("rising", f"delivery {one.count} went to {one.member} and to {other.member}")
            elif one.span.ended_s < other.span.started_s and other.count < one.count:
                yield life.violation("rising", f"delivery {other.count} after delivery {one.count}")
        attempts = {
            (delivery.member, delivery.fetch_id or delivery.span.started_s, delivery.count) for delivery in deliveries
        }
        if deliveries and len(attempts) > limit:
            windows = known.without_redis(deliveries[0].asked_s, deliveries[-1].span.ended_s)
            if len(attempts) > limit + windows:
                yield life.violation("limit", f"{len(attempts)} deliveries, {windows} windows without Redis")


def one_holder_at_a_time(known: Known) -> Iterator[Violation]:
    """A record is not delivered again while a lock on it surely lives."""
    for life in known.lives.values():
        for one, other in combinations(life.deliveries, 2):
            earlier, later = (one, other) if one.count < other.count else (other, one)
            first_s, last_s = min(one.asked_s, other.asked_s), max(one.span.ended_s, other.span.ended_s)
            if earlier.count == later.count or known.without_redis(first_s, last_s):
                continue
            until_s = known.lock_held_until(life, earlier, later.span.ended_s)
            if later.span.ended_s < until_s:
                text = f"{later.member} got it {until_s - later.span.ended_s:.3f} s before the lock of {earlier.member} ends"
                yield life.violation("exclusive", text)


def nothing_is_early(known: Known) -> Iterator[Violation]:
    """A record is not delivered again before the delay of its release has passed, or the backoff of its group.

    The delay of a release begins not before the first try of it was sent. A lock that surely lived ends by itself, and
    the backoff begins there.
    """
    for life in known.lives.values():
        backoff_s = known.history.backoff_s.get(life.group, 0.0)
        for count, (since_s, wait_s) in _releases(known, life, backoff_s).items():
            for delivery in life.deliveries:
                early_s = since_s + wait_s - delivery.span.ended_s
                if delivery.count > count and early_s > EARLY_S:
                    text = (
                        f"released at count {count} for {wait_s:.3f} s; {delivery.member} got it {early_s:.3f} s early"
                    )
                    yield life.violation("early", text)
        for one, other in combinations(life.deliveries, 2) if backoff_s else ():
            earlier, later = (one, other) if one.count < other.count else (other, one)
            first_s, last_s = min(one.asked_s, other.asked_s), max(one.span.ended_s, other.span.ended_s)
            if earlier.count == later.count or known.without_redis(first_s, last_s):
                continue
            until_s = known.lock_held_until(life, earlier, later.span.ended_s)
            early_s = until_s + backoff_s - later.span.ended_s
            if until_s and early_s > EARLY_S:
                text = (
                    f"the lock of {earlier.member} ended; {later.member} got it {early_s:.3f} s before the backoff did"
                )
                yield life.violation("early", text)


def _releases(known: Known, life: RecordLife, backoff_s: float) -> dict[int, tuple[float, float]]:
    """By delivery count, the releases that took effect: when the first try of each was sent, and how long it waits.

    A release took effect if it was answered while its lock surely lived. Later it may only have found the record
    released already, or finished and passed over.
    """
    found: dict[int, tuple[float, float]] = {}
    for delivery in life.deliveries:
        mine = (delivery.member, delivery.count)
        tries = [one for one in life.settlements if (one.member, one.count) == mine and one.status != "failed"]
        answered = [one for one in tries if one.status == "applied" and one.kind == "release"]
        if not answered or any(one.kind not in ("release", "renew") for one in tries):
            continue
        releases = [one for one in tries if one.kind == "release"]
        first, answered_s = min(releases, key=lambda one: one.span), min(one.span.ended_s for one in answered)
        ends_s = known.lock_held_until(life, delivery, first.span.started_s, but=first.span)
        if answered_s < ends_s and not known.without_redis(delivery.asked_s, answered_s):
            delay_ms = first.delay_ms
            wait_s = delay_ms / 1000 if delay_ms is not None else backoff_s if first.begun else 0.0
            found[delivery.count] = first.span.started_s, wait_s
    return found


def holders_are_heard(known: Known) -> Iterator[Violation]:
    """A member that surely holds all records of an acknowledgement is neither refused nor answered that they are
    finished.

    The gateway that was asked repeats what got lost on the way to a leader that died: then an acknowledgement that
    may finish or release a record is answered that it is finished. A renewal never is.
    """
    for ack in known.history.acknowledged:
        refused = ack.status == "failed" and ack.kafka_code == INVALID_RECORD_STATE
        number = known.life_of(ack.group, ack.span)
        if number is None or not (refused or (ack.status == "ignored" and ack.kinds == ("renew",))):
            continue
        lives = [known.lives[ack.group, number, place] for place, _ in ack.places()]
        if all(_surely_holds(known, life, ack) for life in lives):
            answer = "refused" if refused else "answered that it was finished"
            yield lives[0].violation("holder", f"{ack.member} holds it and its {','.join(ack.kinds)} was {answer}")


def _surely_holds(known: Known, life: RecordLife, ack: Acknowledge) -> bool:
    return any(
        (delivery.member, delivery.count) == (ack.member, ack.delivery_count)
        and delivery.span.ended_s <= ack.span.started_s
        and not known.without_redis(delivery.asked_s, ack.span.ended_s)
        and ack.span.ended_s < known.lock_held_until(life, delivery, ack.span.ended_s, but=ack.span)
        for delivery in life.deliveries
    )


def settled_is_settled(known: Known) -> Iterator[Violation]:
    """Only the holder of the latest delivery settles a record, one way, and then it is not delivered again."""
    for life in known.lives.values():
        applied = [settlement for settlement in life.settlements if settlement.status == "applied"]
        if not applied:
            continue
        for settlement in applied:
            yield from _settled_by_another(known, life, settlement)
        final = {(one.kind, one.count) for one in applied if one.kind in TERMINAL}
        if len(final) > 1:
            yield life.violation("settled", f"settled in more than one way: {sorted(final)}")
        for one in applied:
            if one.kind in TERMINAL:
                again = [d for d in life.deliveries if _delivered_again(known, one, d)]
                if again:
                    text = f"{one.kind} at count {one.count} was answered; delivered again at {again[0].count}"
                    yield life.violation("settled", text)


def _delivered_again(known: Known, settled: Settlement, delivery: Delivery) -> bool:
    if delivery.span.started_s > settled.span.ended_s:
        return True
    return delivery.count > settled.count and not known.without_redis(settled.span.started_s, delivery.span.ended_s)


def _settled_by_another(known: Known, life: RecordLife, settlement: Settlement) -> Iterator[Violation]:
    # repeating an acknowledgement that is already in effect succeeds for any member
    so_already = {
        (one.kind, one.count, one.member)
        for one in life.settlements
        if one.status != "failed" and one.span.started_s < settlement.span.ended_s
    }
    for delivery in life.deliveries:
        first_s = min(delivery.asked_s, settlement.span.started_s)
        if known.without_redis(first_s, max(delivery.span.ended_s, settlement.span.ended_s)):
            continue
        if delivery.count == settlement.count and delivery.member != settlement.member:
            if (settlement.kind, settlement.count, delivery.member) in so_already:
                continue
            text = f"{settlement.kind} of delivery {settlement.count} by {settlement.member}, not {delivery.member}"
            yield life.violation("owner", text)


def only_the_latest_counts(known: Known) -> Iterator[Violation]:
    """A record that was delivered again is not settled by an earlier delivery.

    Of a range the part below the start offset is passed over, so what is finished may stand beside what is not.
    """
    for ack in known.history.acknowledged:
        number = known.life_of(ack.group, ack.span)
        if number is None or ack.status != "applied":
            continue
        lives = [known.lives[ack.group, number, place] for place, _ in ack.places()]
        stale = [life for life in lives if _taken_over(known, life, ack)]
        held = [life for life in stale if not _may_be_finished(known, life, ack)]
        if held or (stale and len(stale) == len(lives)):
            text = f"{','.join(ack.kinds)} of delivery {ack.delivery_count} by {ack.member} after a later delivery"
            yield (held or stale)[0].violation("stale", text)


def _taken_over(known: Known, life: RecordLife, ack: Acknowledge) -> bool:
    return any(
        delivery.count > ack.delivery_count
        and delivery.span.ended_s < ack.span.started_s
        and not known.without_redis(delivery.asked_s, ack.span.ended_s)
        for delivery in life.deliveries
    )


def _may_be_finished(known: Known, life: RecordLife, ack: Acknowledge) -> bool:
    """Somebody settled it, or the lock of its last delivery ended."""
    history = known.history
    if (life.group, life.place) in known.dead and any(
        delivery.count >= history.limit and delivery.asked_s + history.lock_s < ack.span.ended_s
        for delivery in life.deliveries
    ):
        return True
    return any(
        settlement.kind in TERMINAL
        and settlement.status != "failed"
        and settlement.span != ack.span
        and settlement.span.started_s < ack.span.ended_s
        for settlement in life.settlements
    )


def every_group_finishes(known: Known) -> Iterator[Violation]:
    """In the end each group has accepted or dead-lettered each record itself, and not both."""
    history = known.history
    dead: dict[str, Counter[Place]] = defaultdict(Counter)
    for letter in history.dead_letters:
        dead[letter.group][letter.place] += 1
        causes = known.maybe[letter.group, "reject"]
        if letter.delivery_count < history.limit and letter.place not in causes:
            text = f"dead-lettered at count {letter.delivery_count}, nobody rejected it"
            yield Violation("dead", letter.group, letter.place, text)
    for group in history.groups:
        resets = known.resets.get(group, [])
        for place, times in dead[group].items():
            if times > 1 + len(resets):
                yield Violation("dead", group, place, f"dead-lettered {times} times")
        for topic, partition in history.log:
            end = history.end_of(topic, partition)
            lag = history.lags.get((group, topic, partition))
            if lag != 0:
                yield Violation("finished", group, (topic, partition, end - 1), f"the group lags by {lag} in the end")
            start = resets[-1].starts.get((topic, partition), 0) if resets else 0
            for offset in known.due(group, topic, partition):
                if offset < start:
                    continue
                place = (topic, partition, offset)
                settled = any(place in known.maybe[group, kind] for kind in ("accept", "gap"))
                if not settled and not dead[group][place]:
                    yield Violation("finished", group, place, "neither accepted nor dead-lettered")
    for (group, number, place), life in known.lives.items():
        if known.resets.get(group) and number != len(known.resets[group]):
            continue
        applied = {settlement.kind for settlement in life.settlements if settlement.status == "applied"}
        if "accept" in applied and dead[group][place] and not known.resets.get(group):
            yield life.violation("dead", "accepted and dead-lettered")
        if "reject" in applied and not dead[group][place]:
            yield life.violation("dead", "rejected, but there is no dead letter of it")


def resets_hold(known: Known) -> Iterator[Violation]:
    """After a reset delivery starts at the planned offsets: not below them, and with the first record."""
    for group, resets in known.resets.items():
        for number, reset in enumerate(resets, start=1):
            lowest: dict[tuple[str, int], int] = {}
            for (of_group, of_life, (topic, partition, offset)), life in known.lives.items():
                if (of_group, of_life) == (group, number) and life.deliveries:
                    lowest[topic, partition] = min(offset, lowest.get((topic, partition), offset))
            for (topic, partition), start in reset.starts.items():
                first = lowest.get((topic, partition))
                if first is not None and first < start:
                    text = f"delivered at {first} after a reset to {start}"
                    yield Violation("reset", group, (topic, partition, first), text)
                due = next((offset for offset in known.due(group, topic, partition) if offset >= start), None)
                if number == len(resets) and due is not None:
                    place = (topic, partition, due)
                    if first != due and place not in known.between[group]:
                        yield Violation("reset", group, place, f"not delivered after a reset to {start}")


def trims_spare_the_unfinished(known: Known) -> Iterator[Violation]:
    """Retention removes nothing above a group's floor: nothing that the group had begun with and not finished.

    What a group had from its first delivery on is finished when it was accepted, rejected or dead-lettered. A reset
    gives the records another life, so groups that were reset prove nothing.
    """
    history = known.history
    finished_s: dict[tuple[str, Place], float] = {}
    for ack in history.acknowledged:
        if ack.status != "failed":
            for place, kind in ack.places():
                if kind in TERMINAL:
                    key = ack.group, place
                    finished_s[key] = min(finished_s.get(key, ack.span.started_s), ack.span.started_s)
    dead = {(letter.group, letter.place) for letter in history.dead_letters}
    begun: dict[tuple[str, str, int], int] = {}
    for fetch in history.fetched:
        for range_ in fetch.ranges:
            where = fetch.group, range_.topic, range_.partition
            begun[where] = min(begun.get(where, range_.first_offset), range_.first_offset)
    for trim in history.trims:
        if trim.log_start_offset and trim.span.ended_s < history.held_until_s:
            place = (trim.topic, trim.partition, trim.log_start_offset - 1)
            yield Violation("trimmed", "", place, "removed while a group held every record")
        for group in history.groups:
            first = begun.get((group, trim.topic, trim.partition))
            if first is None or known.resets.get(group):
                continue
            for offset in known.due(group, trim.topic, trim.partition):
                if not first <= offset < trim.log_start_offset:
                    continue
                place = (trim.topic, trim.partition, offset)
                late = finished_s.get((group, place), trim.span.ended_s) >= trim.span.ended_s
                if late and (group, place) not in dead:
                    yield Violation("trimmed", group, place, "removed before the group had finished it")


RULES: Final[Sequence[Rule]] = (
    produced_is_kept,
    delivered_is_produced,
    counts_rise,
    one_holder_at_a_time,
    nothing_is_early,
    holders_are_heard,
    settled_is_settled,
    only_the_latest_counts,
    every_group_finishes,
    resets_hold,
    trims_spare_the_unfinished,
    *VISIBILITY,
)


def check(history: History) -> list[Violation]:
    """Every promise that a history breaks; none if it keeps all."""
    known = Known(history)
    return [violation for rule in RULES for violation in rule(known)]


def report(history: History, violations: Sequence[Violation], most: int = 5) -> str:
    """The first violations, each with all that touched its record."""
    lines = [f"{len(violations)} violations: {dict(Counter(violation.rule for violation in violations))}"]
    for violation in violations[:most]:
        lines.append(f"{violation.rule}: group {violation.group!r} record {violation.place}: {violation.text}")
        if violation.place is not None:
            lines.append(history.excerpt(violation.group, violation.place))
    return "\n".join(lines)
