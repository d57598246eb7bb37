"""Acknowledgements that name a topic id, at a gateway that has not heard that the topic was deleted and made again."""

import asyncio

from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.acknowledging import APPLIED, AtPartition, Outcomes, check_all

from sharequeue.protocol import apis
from sharequeue.protocol.messages.cluster import DescribeTopicsResponse
from sharequeue.protocol.messages.records import Acknowledgement
from tests.shell.coordinator_wire import CoordinatorWire
from tests.shell.test_metadata import described, know, run

AGAIN = DescribeTopicsResponse(topics=[described("orders", "id-2")])


def accepts(*topic_ids: str | None) -> list[Acknowledgement]:
    return [
        Acknowledgement(topic="orders", topic_id=each, partition=0, first_offset=0, last_offset=0, type="accept")
        for each in topic_ids
    ]


async def checked(metadata: Metadata, *topic_ids: str | None) -> tuple[list[AtPartition], Outcomes]:
    """Check one acknowledgement for each id. Returns: what to apply, and the results."""
    acknowledgements = accepts(*topic_ids)
    outcomes = Outcomes([APPLIED] * len(topic_ids))
    return [*(await check_all(metadata, acknowledgements, outcomes)).values()], outcomes


def codes(outcomes: Outcomes) -> list[int | None]:
    return [result.kafka_code for result in outcomes.results]


def test_an_unknown_id_is_asked_for_before_it_is_refused() -> None:
    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        await know(coordinator, metadata, described("orders", "id-1"))
        (at,), outcomes = await checked(metadata, "id-1", None)
        assert (at.topic.topic_id, [*at.indexes]) == ("id-1", [0, 1])

        both, _ = await asyncio.gather(
            checked(metadata, "id-2", "id-1"), coordinator.answer(apis.DESCRIBE_TOPICS, AGAIN)
        )
        (at,), outcomes = both
        assert (at.topic.topic_id, [*at.indexes], codes(outcomes)) == ("id-2", [0], [None, 100])
        assert not outcomes.results[1].retriable

    run(work)


def test_both_ids_in_one_call_whose_topic_is_known_as_the_old_one() -> None:
    """The later one is repeated: the acknowledgements before it name the old topic."""

    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        await know(coordinator, metadata, described("orders", "id-1"))
        both, _ = await asyncio.gather(
            checked(metadata, "id-1", "id-2", "id-3"), coordinator.answer(apis.DESCRIBE_TOPICS, AGAIN)
        )
        (at,), outcomes = both
        assert (at.topic.topic_id, [*at.indexes], codes(outcomes)) == ("id-1", [0], [None, 6, 100])
        assert outcomes.results[1].retriable
        (at,), outcomes = await checked(metadata, "id-2")
        assert at.topic.topic_id == "id-2"

    run(work)


def test_an_id_that_cannot_be_asked_for_is_not_refused_for_good() -> None:
    async def work(coordinator: CoordinatorWire, metadata: Metadata) -> None:
        await know(coordinator, metadata, described("orders", "id-1"))
        coordinator.away = True
        found, outcomes = await checked(metadata, "id-2")
        assert (found, outcomes.results[0].retriable) == ([], True)

    run(work)
