"""What a topic may be: its name, partitions and settings. Pure."""

from collections.abc import Mapping, Sequence

from sharequeue.protocol.configs import TOPIC_CONFIGS, config_text, effective, validate
from sharequeue.protocol.errors import InvalidPartitions, InvalidTopic
from sharequeue.protocol.messages.fields import ConfigValue
from sharequeue.protocol.types import topic_name_fault


def check_new(name: str, partitions: int, config: Mapping[str, ConfigValue], limit: int) -> dict[str, str]:
    """The settings to store for a new topic. Raises: InvalidTopic, InvalidPartitions, InvalidConfig."""
    fault = topic_name_fault(name)
    if fault:
        raise InvalidTopic(fault)
    check_partitions(partitions, limit)
    return changed_config({}, config, ())


def check_partitions(partitions: int, limit: int) -> None:
    if not 1 <= partitions <= limit:
        above = limit if partitions > limit else None
        raise InvalidPartitions(f"a topic must have 1 to {limit} partitions, not {partitions}", limit=above)


def check_growth(name: str, present: int, wanted: int, limit: int) -> None:
    """Raises: InvalidPartitions: too many, or fewer than there are."""
    check_partitions(wanted, limit)
    if wanted < present:
        raise InvalidPartitions(f"topic {name!r} has {present} partitions and cannot shrink to {wanted}")


def changed_config(
    stored: Mapping[str, str], changes: Mapping[str, ConfigValue | None], reset: Sequence[str]
) -> dict[str, str]:
    """The stored settings after changes. `None`, and a name in `reset`, set the default. Raises: InvalidConfig."""
    config = dict(stored)
    for name in (*reset, *(name for name, value in changes.items() if value is None)):
        validate(TOPIC_CONFIGS, name, TOPIC_CONFIGS[name].default if name in TOPIC_CONFIGS else "", False)
        config.pop(name, None)
    for name, value in changes.items():
        if value is not None:
            config[name] = validate(TOPIC_CONFIGS, name, config_text(value), False)
    return config


def config_in_force(stored: Mapping[str, str], kafka_defaults: bool = False) -> dict[str, str]:
    return effective(TOPIC_CONFIGS, stored, kafka_defaults)
