"""Finds where the partitions of a read's topics begin and end now, and where the read begins."""

from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import SourceOptions
from sharequeue_pipeline.source import log_offsets
from sharequeue_pipeline.source.log_offsets import Bounds, Log, Place
from sharequeue_pipeline.source.log_times import offsets_at
from sharequeue_pipeline.source.topic_names import TopicNames


def log_of(gateway: GatewayClient, topics: TopicNames, *, committed: bool = False) -> Log:
    """`committed`: the bounds end at the last stable offset."""
    found_now = {topic: gateway.find(topic) for topic in topics.names(gateway)}
    if topics.of_pattern:
        described = {topic: found for topic, found in found_now.items() if found is not None}
    else:
        described = {topic: found or gateway.describe(topic) for topic, found in found_now.items()}
    places = {(topic, entry.partition): entry for topic, found in described.items() for entry in found.partitions}
    ends = {place: entry.log_end_offset for place, entry in places.items()}
    stable = {place: entry.last_stable_offset for place, entry in places.items()} if committed else ends
    bounds = {place: (entry.log_start_offset, stable[place]) for place, entry in places.items()}
    return Log({topic: found.topic_id for topic, found in described.items()}, bounds, ends)


def starts_of(gateway: GatewayClient, options: SourceOptions, bounds: Bounds) -> dict[Place, int]:
    """Return where a read begins, by offsets or by time."""
    starting = options.starting
    if options.starting_at is not None:
        fail = options.starting_strategy == "error"
        starting = offsets_at(gateway, options.starting_at, bounds, "startingOffsetsByTimestamp", fail_if_none=fail)
    return log_offsets.starts_of(starting, bounds, fail_on_data_loss=options.fail_on_data_loss)
