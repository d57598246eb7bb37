"""A page of what is in flight at several leaders: everything once and in order, wherever a leader's list was full."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from sharequeue_gateway.http.answers.page_tokens import PLACE, PageTokens
from sharequeue_gateway.http.single_records.in_flight_api import _page

from sharequeue.protocol.messages.in_flight import InFlightBatch, InFlightPartition, ListInFlightResponse
from sharequeue.protocol.messages.problems import PartitionError

TOKENS = PageTokens("secret")
BATCH = InFlightBatch(first_offset=0, last_offset=0, delivery_state="ACQUIRED", delivery_count=1, attempt=1)


def entry(place: tuple[str, int], size: int) -> InFlightPartition:
    topic, partition = place
    batches = [BATCH] * (size - 1)
    return InFlightPartition(topic=topic, partition=partition, start_offset=0, end_offset=0, batches=batches)


def fault(place: tuple[str, int]) -> PartitionError:
    return PartitionError(topic=place[0], partition=place[1], code="X", kafka_code=1, detail="")


@pytest.mark.parametrize("page_size", [1, 2, 7, 20, 1000])
def test_pages_of_several_leaders_hold_everything_once_and_in_order(page_size: int, seed: int) -> None:
    random = Random(seed)
    places = [(topic, partition) for topic in ("a", "b", "c") for partition in range(8)]
    sizes = {place: random.randrange(6) for place in places}
    leaders = {place: random.randrange(3) for place in places}
    idle = set(random.sample(places, 5))  # not in memory: no leader lists them
    found: list[tuple[str, int]] = []
    after: tuple[str, int] | None = ("", -1)
    while after is not None:
        wanted = [place for place in places if place > after]
        more, wanted = len(wanted) > page_size, wanted[:page_size]
        answers = []
        for leader in range(3):
            answer, room = ListInFlightResponse(partitions=[]), page_size
            for place in wanted:
                if leaders[place] == leader and place not in idle and room > 0:
                    answer.partitions += [entry(place, sizes[place])] if sizes[place] else []
                    answer.errors += [] if sizes[place] else [fault(place)]
                    room -= max(sizes[place], 1)
            answers.append(answer)
        topics: Any = [(SimpleNamespace(name=topic), partition) for topic, partition in wanted]
        page = _page(answers, topics, more, page_size, TOKENS)
        listed = [(each.topic, each.partition) for each in page.partitions]
        these = sorted([*listed, *((each.topic, each.partition) for each in page.errors)])
        assert sum(max(sizes[place], 1) for place in these[:-1]) < page_size
        found += these
        after = TOKENS.place(page.next_page_token, PLACE, "", None)
    assert found == [place for place in places if place not in idle]


A0, A1, A2, A3 = [("a", partition) for partition in range(4)]


@pytest.mark.parametrize(
    ("lists", "wanted", "shown", "behind"),
    [
        ([[(A0, 3)], [(A0, 1), (A1, 1)]], [A0, A1, A2], [A0], A0),  # the first one leads a-2, too: it had no room
        ([[(A0, 1)], [(A3, 1)]], [A0, A1], [A0], A1),  # nobody was asked for a-2
        ([[(A0, 1), (A1, 1)]], [A0, A2], [A0, A1], A2),
    ],
    ids=["one that two leaders list", "one that is not wanted yet", "one that was wanted since"],
)
def test_a_page_passes_over_nothing_while_share_partitions_move(
    lists: Any, wanted: list[tuple[str, int]], shown: list[tuple[str, int]], behind: tuple[str, int]
) -> None:
    answers = [ListInFlightResponse(partitions=[entry(*each) for each in listed]) for listed in lists]
    topics: Any = [(SimpleNamespace(name=topic), partition) for topic, partition in wanted]
    page = _page(answers, topics, True, 3, TOKENS)
    assert [(each.topic, each.partition) for each in page.partitions] == shown
    assert TOKENS.place(page.next_page_token, PLACE, "", None) == behind
