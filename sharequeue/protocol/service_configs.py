"""The service-wide settings of share groups, `group.share.…`: defaults and bounds that the operator sets.

Five settings of groups have three of them each: the value of a group that says nothing, and the least and the highest
value that a group may have. They stand in place of the default and the bounds of the group setting's own row.
Source: KIP-932, KIP-1240.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Final

from sharequeue.protocol.configs import (
    GROUP_CONFIGS,
    HEARTBEAT,
    SERVICE_WIDE,
    SESSION,
    Config,
    Configs,
    group_config_values,
    service_name,
)
from sharequeue.protocol.messages.groups import Clamped

EMPTY_RETENTION: Final = "group.share.empty.retention.ms"
NAMES: Final = {name: tuple(service_name(name, which) for which in ("min", "", "max")) for name in SERVICE_WIDE}
"""By setting of a group, the service-wide ones of its least value, its default and its highest value."""


def service_config(given: Mapping[str, int | None], kafka_defaults: bool) -> dict[str, int]:
    """All service-wide settings by name: those that are given, and for the others the default or bound of the group
    setting's row. Raises: ValueError: they contradict each other."""
    values = {name: value for name, value in given.items() if value is not None}
    for name, names in NAMES.items():
        config = GROUP_CONFIGS[name]
        (low, high), (floor, ceiling) = config.bounds(kafka_defaults), config.range
        for each, value in zip(names, (low, int(config.default_for(kafka_defaults)), high), strict=True):
            if not floor <= values.setdefault(each, value) <= ceiling:
                raise ValueError(f"{each} must be from {floor} to {ceiling}, not {values[each]}")
        for lower, higher in combinations(names, 2):
            if values[lower] > values[higher]:
                raise ValueError(f"{lower} ({values[lower]}) must not be above {higher} ({values[higher]})")
    for beat, session in zip(NAMES[HEARTBEAT][:2], NAMES[SESSION][:2], strict=True):
        if values[beat] >= values[session]:
            raise ValueError(f"{beat} ({values[beat]}) must be below {session} ({values[session]})")
    return values


def group_configs(service: Mapping[str, int]) -> Configs:
    """The settings of groups with the defaults and bounds of the service, as `service_config` returns them."""
    configs = dict(GROUP_CONFIGS)
    for name, names in NAMES.items():
        low, default, high = (service[each] for each in names)
        configs[name] = Config(name, str(default), configs[name].doc, (low, high), kind="int")
    return configs


def clamped(stored: Mapping[str, str], kafka_defaults: bool, configs: Configs) -> dict[str, Clamped]:
    """The stored values of a group that are not used as they are."""
    in_force = group_config_values("", stored, kafka_defaults, configs)
    found = {}
    for name, text in stored.items():
        if name in configs and configs[name].kind == "int" and in_force[name] != text:
            value, (low, high) = int(text), configs[name].bounds(kafka_defaults)
            bound = SESSION  # of a heartbeat interval that is not below the session
            if not low <= value <= high:
                bound = NAMES[name][0 if value < low else 2] if name in NAMES else "kafka_defaults"
            found[name] = Clamped(stored=value, used=int(in_force[name]), bound=bound)
    return found
