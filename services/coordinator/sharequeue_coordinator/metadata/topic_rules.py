"""Checks what a topic may be: its name, partitions and settings. Pure."""

from collections.abc import Mapping

from sharequeue.protocol.configs import TOPIC_CONFIGS, changed_config
from sharequeue.protocol.errors import InvalidPartitions, InvalidTopic
from sharequeue.protocol.types import topic_name_fault


def check_new(name: str, partitions: int, config: Mapping[str, str], limit: int) -> dict[str, str]:
    """The settings to store for a new topic. Raises: InvalidTopic, InvalidPartitions, InvalidConfig."""
    fault = topic_name_fault(name)
    if fault:
        raise InvalidTopic(fault)
    check_partitions(partitions, limit)
    return changed_config(TOPIC_CONFIGS, {}, config, ())


def check_partitions(partitions: int, limit: int) -> None:
    if not 1 <= partitions <= limit:
        above = limit if partitions > limit else None
        raise InvalidPartitions(f"a topic must have 1 to {limit} partitions, not {partitions}", limit=above)


def check_growth(name: str, present: int, wanted: int, limit: int) -> None:
    """Raises: InvalidPartitions: too many, or fewer than there are."""
    check_partitions(wanted, limit)
    if wanted < present:
        raise InvalidPartitions(f"topic {name!r} has {present} partitions and cannot shrink to {wanted}")
