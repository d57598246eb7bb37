"""What the settings of a group may be. Pure. The settings themselves: `sharequeue.protocol.configs`."""

from collections.abc import Mapping

from sharequeue.protocol.configs import GROUP_CONFIGS, config_text, effective, validate
from sharequeue.protocol.errors import InvalidConfig
from sharequeue.protocol.messages.fields import ConfigValue


def changed_config(
    stored: Mapping[str, str], changes: Mapping[str, ConfigValue | list[str] | None], kafka_defaults: bool
) -> dict[str, str]:
    """The stored settings after changes. `None`, and a name in `reset`, set the default. Raises: InvalidConfig."""
    reset = changes.get("reset", [])
    if not isinstance(reset, list):
        raise InvalidConfig("reset must be an array of the names of settings")
    config = dict(stored)
    for name in (*reset, *(name for name, value in changes.items() if value is None)):
        if name not in GROUP_CONFIGS:
            raise InvalidConfig(f"there is no setting {name!r}; the settings are {', '.join(sorted(GROUP_CONFIGS))}")
        config.pop(name, None)
    for name, value in changes.items():
        if name == "reset" or value is None:
            continue
        if isinstance(value, list):
            raise InvalidConfig(f"{name} must have one value, not an array")
        config[name] = validate(GROUP_CONFIGS, name, config_text(value), kafka_defaults)
    values = effective(GROUP_CONFIGS, config, kafka_defaults)
    if int(values["share.session.timeout.ms"]) <= int(values["share.heartbeat.interval.ms"]):
        raise InvalidConfig("share.session.timeout.ms must be greater than share.heartbeat.interval.ms")
    return config
