"""Who of a group gets which partitions: balanced first, then sticky. Pure. Source: KIP-932, the "simple" assignor.

With M members and N partitions each partition is shared by ceil(M / N) members, and what that makes in all is split so
that members differ by at most one. Where all members want the same topics this holds over all their partitions; where
they differ it holds for each topic over the members that want it. Within that, members keep what they had.

The walk of KIP-932 can end with a partition that nobody short of one may take, because those short of one hold it
already. It is then exchanged through a third member, which is always possible: the balance holds without exception.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import nlargest

from sharequeue.protocol.errors import ApiError

Assignment = Mapping[str, frozenset[int]]
"""The partitions of one member by topic id; a topic of which it has none is absent."""


class AssignorError(ApiError):
    """A target assignment cannot be computed: UNKNOWN_SERVER_ERROR, as Kafka answers it."""


def assign(
    subscriptions: Mapping[str, Collection[str]],
    assignable: Mapping[str, Collection[int]],
    previous: Mapping[str, Assignment],
) -> dict[str, dict[str, frozenset[int]]]:
    """The target assignment of a group. The same whatever order the arguments come in.

    Args:
        subscriptions: member id to the topic ids it wants. assignable: every topic id to the partitions that may be
            handed out, perhaps none. previous: the last target by member id; members, topics and partitions that are
            gone from the others are ignored.
    Returns: member id to its partitions, every member there; empty if nobody wants anything. Every assignable
        partition of a topic that somebody wants is in it.
    Raises: AssignorError: a member wants a topic that `assignable` does not know.
    """
    wanted = {member_id: frozenset(subscriptions[member_id]) for member_id in sorted(subscriptions)}
    distinct = frozenset(wanted.values())
    topic_ids = frozenset[str]().union(*distinct)
    unknown = sorted(topic_ids - assignable.keys())
    if unknown:
        raise AssignorError(f"members want topics that are not there: {', '.join(unknown)}")
    if not topic_ids:
        return {}
    target: dict[str, dict[str, frozenset[int]]] = {member_id: {} for member_id in wanted}
    if len(distinct) == 1:
        _assign_topics(sorted(topic_ids), list(wanted), assignable, previous, target)
        return target
    subscribed: dict[str, list[str]] = {topic_id: [] for topic_id in topic_ids}
    for member_id, of_member in wanted.items():
        for topic_id in of_member:
            subscribed[topic_id].append(member_id)
    for topic_id, members in subscribed.items():
        _assign_topics([topic_id], members, assignable, previous, target)
    return target


def _assign_topics(
    topic_ids: Sequence[str],
    members: Sequence[str],
    assignable: Mapping[str, Collection[int]],
    previous: Mapping[str, Assignment],
    target: dict[str, dict[str, frozenset[int]]],
) -> None:
    """Hand out these topics' partitions to members that want them all. Partitions are numbered through: 0..N−1."""
    numbers: dict[str, dict[int, int]] = {}
    partitions: list[tuple[str, int]] = []
    for topic_id in topic_ids:
        some = sorted(assignable[topic_id])
        numbers[topic_id] = dict(zip(some, range(len(partitions), len(partitions) + len(some)), strict=True))
        partitions.extend((topic_id, partition) for partition in some)
    held = [_numbered(previous.get(member_id, {}), numbers) for member_id in members]
    balance(held, len(partitions))
    for member_id, numbered in zip(members, held, strict=True):
        by_topic: dict[str, list[int]] = {}
        for number in numbered:
            topic_id, partition = partitions[number]
            by_topic.setdefault(topic_id, []).append(partition)
        assigned = target[member_id]
        for topic_id, of_topic in by_topic.items():
            assigned[topic_id] = frozenset(of_topic)


def _numbered(assignment: Assignment, numbers: Mapping[str, Mapping[int, int]]) -> set[int]:
    """The numbers of those partitions that have one. Cost follows the smaller of the two."""
    found: set[int] = set()
    for topic_id in numbers if len(numbers) < len(assignment) else assignment:
        if topic_id in numbers and topic_id in assignment:
            of_topic = numbers[topic_id]
            found.update(of_topic[partition] for partition in assignment[topic_id] if partition in of_topic)
    return found


def balance(held: Sequence[set[int]], partitions: int) -> None:
    """Move as few partitions as balance needs.

    Args:
        held: for each of M ≥ 1 members the partitions it has, of 0..N−1; changed in place. Afterwards each partition
            is held by ceil(M / N) members, and members differ by at most one.
        partitions: N.
    """
    if not partitions:
        return
    sharing = -(-len(held) // partitions)
    desired = desired_counts(sharing * partitions, [len(some) for some in held])
    shared = [0] * partitions
    for some in held:
        for partition in some:
            shared[partition] += 1
    kept = [frozenset(some) for some in held]
    for some, count in zip(held, desired, strict=True):
        if len(some) > count:
            for partition in nlargest(len(some) - count, some, key=lambda number: (shared[number], number)):
                some.remove(partition)
                shared[partition] -= 1
    if max(shared) > sharing:
        for some in reversed(held):
            for partition in sorted(some):
                if shared[partition] > sharing:
                    some.remove(partition)
                    shared[partition] -= 1
    short = deque(member for member, count in enumerate(desired) if len(held[member]) < count)
    for partition in list(_hand_out(held, desired, shared, sharing, short)):
        _exchange(held, desired, kept, partition, short)


def desired_counts(slots: int, counts: Sequence[int]) -> list[int]:
    """How many partitions each member shall have: they differ by at most one and make `slots` in all.

    Who has the larger number by `counts`, what they hold, keeps it; the others are spread evenly over the members.
    """
    members = len(counts)
    small, left = divmod(slots, members)
    desired = [small] * members
    if not left:
        return desired
    spread = [-(-slots * (member + 1) // members) - -(-slots * member // members) for member in range(members)]
    holding = [member for member in range(members) if counts[member] > small]
    if holding:
        order = sorted(range(members), key=lambda member: (counts[member] <= small, -spread[member]))
    else:
        order = [member for member in range(members) if spread[member] > small]
    for member in order[:left]:
        desired[member] += 1
    return desired


def _hand_out(
    held: Sequence[set[int]], desired: Sequence[int], shared: Sequence[int], sharing: int, short: deque[int]
) -> Iterator[int]:
    """Walk the partitions once and give each to members that are short, in turn.

    Yields: a partition, once for each member it still lacks because all that are short hold it.
    """
    for partition, holders in enumerate(shared):
        lacking = sharing - holders
        passed, served = [], []
        while lacking and short:
            member = short.popleft()
            if partition in held[member]:
                passed.append(member)
                continue
            held[member].add(partition)
            lacking -= 1
            if len(held[member]) < desired[member]:
                served.append(member)
        short.extendleft(reversed(passed))
        short.extend(served)
        for _ in range(lacking):
            yield partition


def _exchange(
    held: Sequence[set[int]],
    desired: Sequence[int],
    kept: Sequence[frozenset[int]],
    partition: int,
    short: deque[int],
) -> None:
    """Give a partition that all who are short hold to another member, which passes one on to the first who is short.

    One that is short has fewer partitions than a member that is not, and this one besides: so the other has one to pass
    on. Best is one that it has only just been given.
    """
    member = short[0]
    others = [other for other in range(len(held)) if partition not in held[other]]
    fresh = ((other, held[other] - held[member] - kept[other]) for other in others)
    other, some = next(((other, some) for other, some in fresh if some), (others[0], held[others[0]] - held[member]))
    passed_on = min(some)
    held[other].remove(passed_on)
    held[other].add(partition)
    held[member].add(passed_on)
    if len(held[member]) == desired[member]:
        short.popleft()
