"""The service-wide settings of share groups, `group.share.…`: defaults and bounds that the operator sets.

Five settings of groups have three of them each: the value of a group that says nothing, and the least and the highest
value that a group may have. They stand in place of the default and the bounds of the group setting's own row.
Source: KIP-932, KIP-1240.
"""

from collections.abc import Mapping
from typing import Final

from sharequeue.protocol.configs import (
    GROUP_CONFIGS,
    HEARTBEAT,
    SESSION,
    Config,
    Configs,
    group_config_values,
    service_name,
)
from sharequeue.protocol.messages.groups import Clamped

EMPTY_RETENTION: Final = "group.share.empty.retention.ms"
SHARED: Final = tuple(config for config in GROUP_CONFIGS.values() if config.service_wide)


def service_config(given: Mapping[str, int | None], kafka_defaults: bool) -> dict[str, int]:
    """All service-wide settings by name: those that are given, and for the others the default or bound of the group
    setting's row. Raises: ValueError: they contradict each other."""
    values = {name: value for name, value in given.items() if value is not None}
    for config in SHARED:
        low, high = config.bounds(kafka_defaults)
        floor, ceiling = config.range
        names = default, least, most = [service_name(config.name, which) for which in ("", "min", "max")]
        for name, value in zip(names, (int(config.default_for(kafka_defaults)), low, high), strict=True):
            if not floor <= values.setdefault(name, value) <= ceiling:
                raise ValueError(f"{name} must be from {floor} to {ceiling}, not {values[name]}")
        for lower, higher in ((least, most), (least, default), (default, most)):
            if values[lower] > values[higher]:
                raise ValueError(f"{lower} ({values[lower]}) must not be above {higher} ({values[higher]})")
    for which in ("", "min"):
        beat, session = service_name(HEARTBEAT, which), service_name(SESSION, which)
        if values[beat] >= values[session]:
            raise ValueError(f"{beat} ({values[beat]}) must be below {session} ({values[session]})")
    return values


def group_configs(service: Mapping[str, int]) -> Configs:
    """The settings of groups with the defaults and bounds of the service, as `service_config` returns them."""
    configs = dict(GROUP_CONFIGS)
    for name, kind, _, doc, *_ in SHARED:
        default, low, high = (service[service_name(name, which)] for which in ("", "min", "max"))
        configs[name] = Config(name, kind, str(default), doc, (low, high), service_wide=True)
    return configs


def clamped(stored: Mapping[str, str], kafka_defaults: bool, configs: Configs) -> dict[str, Clamped]:
    """The stored values of a group that are not used as they are."""
    in_force = group_config_values("", stored, kafka_defaults, configs)
    found = {}
    for name, text in stored.items():
        if name in configs and configs[name].kind == "int" and in_force[name] != text:
            value, (low, high) = int(text), configs[name].bounds(kafka_defaults)
            bound = (
                service_name(name, "min" if value < low else "max") if configs[name].service_wide else "kafka_defaults"
            )
            if low <= value <= high:  # a heartbeat interval that is not below the session
                bound = SESSION
            found[name] = Clamped(stored=value, used=int(in_force[name]), bound=bound)
    return found
