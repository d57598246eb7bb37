"""Assigns the partitions of a group to its members: balanced first, then sticky. Pure. Source: KIP-932, "simple"
assignor.

With M members and N partitions, each partition is shared by ceil(M / N) members, and the numbers of partitions of any
two members differ by at most one. If all members subscribe to the same topics, this holds over all partitions of these
topics. Otherwise it holds for each topic, over the members that subscribe to it.
Within these bounds members keep their partitions.

The walk of KIP-932 can end with a partition that no member may take: each that still needs one holds this one already.
Then a third member takes it and passes on another. Such a member always exists, so the balance has no exception.

If subscriptions differ, the cost grows with members times topics. Therefore topics with equal partitions and holders
are balanced once, and sets that do not change are not copied.
"""

from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Final

from sharequeue_http.forms.errors import ApiError

Assignment = Mapping[str, frozenset[int]]
"""The partitions of one member by topic id, without the topics of which it has none."""

NONE: Final[frozenset[int]] = frozenset()


class AssignorError(ApiError):
    """A target assignment cannot be computed. UNKNOWN_SERVER_ERROR, as in Kafka."""


def assign(
    subscriptions: Mapping[str, Collection[str]],
    assignable: Mapping[str, Collection[int]],
    previous: Mapping[str, Assignment],
) -> dict[str, dict[str, frozenset[int]]]:
    """The target assignment of a group. The order of the arguments' entries does not matter.

    Args:
        subscriptions: member id to the topic ids it subscribes to. assignable: topic id to the partitions that may be
            assigned; some may have none. previous: the last target by member id; members, topics and partitions that
            the other arguments do not have are ignored.
    Returns: member id to its partitions, for every member; empty if no member subscribes to anything. It has every
        assignable partition of the topics subscribed to.
    Raises: AssignorError: `assignable` lacks a topic that a member subscribes to.
    """
    wanted = {member_id: frozenset(subscriptions[member_id]) for member_id in sorted(subscriptions)}
    kinds = frozenset(wanted.values())
    topic_ids = frozenset[str]().union(*kinds)
    unknown = sorted(topic_ids - assignable.keys())
    if unknown:
        raise AssignorError(f"members subscribe to topics that do not exist: {', '.join(unknown)}")
    if not topic_ids:
        return {}
    if len(kinds) == 1:
        return _assign_together(sorted(topic_ids), list(wanted), assignable, previous)
    return _assign_each(wanted, kinds, {topic_id: sorted(assignable[topic_id]) for topic_id in topic_ids}, previous)


def _assign_together(
    topic_ids: Sequence[str],
    members: Sequence[str],
    assignable: Mapping[str, Collection[int]],
    previous: Mapping[str, Assignment],
) -> dict[str, dict[str, frozenset[int]]]:
    """Assign the partitions of all topics to members that subscribe to all of them,
    as partitions 0 to N − 1 of one topic."""
    numbers: dict[str, dict[int, int]] = {}
    partitions: list[tuple[str, int]] = []
    for topic_id in topic_ids:
        some = sorted(assignable[topic_id])
        numbers[topic_id] = dict(zip(some, range(len(partitions), len(partitions) + len(some)), strict=True))
        partitions.extend((topic_id, partition) for partition in some)
    kept = [_numbered(previous.get(member_id, {}), numbers) for member_id in members]
    target = {}
    for member_id, numbered in zip(members, balance(kept, range(len(partitions))), strict=True):
        by_topic: dict[str, list[int]] = {}
        for number in numbered:
            topic_id, partition = partitions[number]
            by_topic.setdefault(topic_id, []).append(partition)
        target[member_id] = {topic_id: frozenset(of_topic) for topic_id, of_topic in by_topic.items()}
    return target


def _numbered(assignment: Assignment, numbers: Mapping[str, Mapping[int, int]]) -> frozenset[int]:
    """The numbers of an assignment's partitions, without those that have none."""
    return frozenset(
        [
            of_topic[partition]
            for topic_id, some in assignment.items()
            if (of_topic := numbers.get(topic_id))
            for partition in some
            if partition in of_topic
        ]
    )


def _assign_each(
    wanted: Mapping[str, frozenset[str]],
    kinds: Collection[frozenset[str]],
    partitions: Mapping[str, Sequence[int]],
    previous: Mapping[str, Assignment],
) -> dict[str, dict[str, frozenset[int]]]:
    """Assign each topic by itself to the members that subscribe to it.

    Each topic has a column of the partitions that its members had, and one of those they get, in the order of `wanted`.
    """
    there = frozenset(topic_id for topic_id, some in partitions.items() if some)
    topics = {kind: tuple(kind & there) for kind in kinds}
    had: dict[str, list[frozenset[int]]] = {topic_id: [] for topic_id in there}
    columns = {kind: [had[topic_id] for topic_id in of_kind] for kind, of_kind in topics.items()}
    for member_id, kind in wanted.items():
        before = previous.get(member_id, {})
        for column, some in zip(columns[kind], map(before.get, topics[kind], repeat(NONE)), strict=False):
            column.append(some)
    balanced: dict[Hashable, Sequence[frozenset[int]]] = {}
    shares: dict[str, Iterator[frozenset[int]]] = {}
    for topic_id, column in had.items():
        alike = tuple(partitions[topic_id]), tuple(column)
        if alike not in balanced:
            balanced[alike] = _balance_topic(*alike)
        shares[topic_id] = iter(balanced[alike])
    take = {kind: [shares[topic_id] for topic_id in of_kind] for kind, of_kind in topics.items()}
    return {
        member_id: dict(zip(topics[kind], map(next, take[kind]), strict=True)) for member_id, kind in wanted.items()
    }


def _balance_topic(partitions: Sequence[int], kept: Sequence[frozenset[int]]) -> Sequence[frozenset[int]]:
    """`balance`, where `kept` may hold partitions that no longer exist.
    Equal sets of the result are the same object."""
    every = frozenset(partitions)
    gone = frozenset[int]().union(*set(kept)) - every
    held = balance([some - gone for some in kept] if gone else kept, partitions)
    same: dict[frozenset[int], frozenset[int]] = {}
    frozen = [some if isinstance(some, frozenset) else frozenset(some) for some in held]
    return [same.setdefault(some, some) for some in frozen]


def balance(kept: Sequence[frozenset[int]], partitions: Sequence[int]) -> list[frozenset[int] | set[int]]:
    """Balance partitions over members, and move as few as that needs.

    Args:
        kept: for each of M ≥ 1 members the partitions it has. partitions: all N, ascending.
    Returns: for each member the partitions it shall have. ceil(M / N) members share each partition, and the numbers of
        partitions of two members differ by at most one. A set that does not change is returned itself.
    """
    held: list[frozenset[int] | set[int]] = list(kept)
    if not partitions:
        return held
    sharing = -(-len(held) // len(partitions))
    desired = desired_counts(sharing * len(partitions), list(map(len, kept)))
    shared = Counter(dict.fromkeys(partitions, 0))
    shared.update(chain.from_iterable(held))
    for member, (some, count) in enumerate(zip(kept, desired, strict=True)):
        if len(some) > count:
            staying = sorted(sorted(some), key=shared.__getitem__)
            held[member] = set(staying[:count])
            for partition in staying[count:]:
                shared[partition] -= 1
    excess = {partition for partition, holders in shared.items() if holders > sharing}
    for member in reversed(range(len(held))):
        if not excess:
            break
        for partition in sorted(excess.intersection(held[member])):
            _own(held, member).remove(partition)
            shared[partition] -= 1
            if shared[partition] == sharing:
                excess.remove(partition)
    short = deque([member for member, count in enumerate(desired) if len(held[member]) < count])
    for partition in list(_hand_out(held, desired, shared, sharing, short)):
        _exchange(held, desired, kept, partition, short)
    return held


def _own(held: list[frozenset[int] | set[int]], member: int) -> set[int]:
    """The partitions of a member, as a set that may be changed."""
    some = held[member]
    if isinstance(some, frozenset):
        some = held[member] = set(some)
    return some


def desired_counts(slots: int, counts: Sequence[int]) -> list[int]:
    """Return how many partitions each member shall have: `slots` in all, and no two members differ by more than one.

    Args:
        counts: how many each member holds. One that holds the larger number keeps it; the others that get the larger
            number are spread evenly over the members.
    """
    members = len(counts)
    small, left = divmod(slots, members)
    desired = [small] * members
    if not left:
        return desired
    spread = _spread(left, members)
    order = [member for member, count in enumerate(counts) if count > small]
    if len(order) > left:
        order.sort(key=spread.__getitem__, reverse=True)
    elif len(order) < left:
        others = [member for member, count in enumerate(counts) if count <= small]
        order += sorted(others, key=spread.__getitem__, reverse=True)
    for member in order[:left]:
        desired[member] += 1
    return desired


@lru_cache(maxsize=16)
def _spread(left: int, members: int) -> Sequence[int]:
    """For each member 1 or 0, with `left` ones spread evenly."""
    return [-(-left * (member + 1) // members) - -(-left * member // members) for member in range(members)]


def _hand_out(
    held: list[frozenset[int] | set[int]],
    desired: Sequence[int],
    shared: Mapping[int, int],
    sharing: int,
    short: deque[int],
) -> Iterator[int]:
    """Walk the partitions once, and give each to members that need more, in turn. `short`: these members.

    Yields: a partition that still lacks a member, because all members that need more hold it already; once per member.
    """
    for partition, holders in shared.items():
        lacking = sharing - holders
        passed, served = [], []
        while lacking and short:
            member = short.popleft()
            if partition in held[member]:
                passed.append(member)
                continue
            own = _own(held, member)
            own.add(partition)
            lacking -= 1
            if len(own) < desired[member]:
                served.append(member)
        short.extendleft(reversed(passed))
        short.extend(served)
        for _ in range(lacking):
            yield partition


def _exchange(
    held: list[frozenset[int] | set[int]],
    desired: Sequence[int],
    kept: Sequence[frozenset[int]],
    partition: int,
    short: deque[int],
) -> None:
    """Give a partition that every short member holds to another member, which passes one on to the first short member.

    The short member has fewer partitions than the other, and holds this one as well. So the other holds one that the
    short member lacks. One that the other did not have before is preferred: then nobody loses a kept partition.
    """
    member = short[0]
    others = [other for other in range(len(held)) if partition not in held[other]]
    fresh = ((other, held[other] - held[member] - kept[other]) for other in others)
    other, some = next(((other, some) for other, some in fresh if some), (others[0], held[others[0]] - held[member]))
    passed_on = min(some)
    own = _own(held, other)
    own.remove(passed_on)
    own.add(partition)
    own = _own(held, member)
    own.add(passed_on)
    if len(own) == desired[member]:
        short.popleft()
