"""What the settings of a group may be. Pure. The settings themselves: `sharequeue.protocol.configs`."""

from collections.abc import Mapping

from sharequeue.protocol.configs import GROUP_CONFIGS, config_text, effective, validate
from sharequeue.protocol.errors import InvalidConfig
from sharequeue.protocol.messages.fields import ConfigValue
from sharequeue.protocol.mistakes import escaped, wrong

Changes = Mapping[str, ConfigValue | list[str] | dict[str, ConfigValue | None] | None]


def changed_config(stored: Mapping[str, str], changes: Changes, kafka_defaults: bool) -> dict[str, str]:
    """The stored settings after changes. `None`, and a name in `reset`, set the default.

    Args:
        changes: `{"config": {…}, "reset": […]}`, or the older form with the settings themselves beside `reset`.
    Raises: InvalidConfig: an unknown setting or a value that it cannot have. InvalidRequest: both forms at once.
    """
    values, reset = _values_and_reset(changes)
    config = dict(stored)
    for name in (*reset, *(name for name, value in values.items() if value is None)):
        if name not in GROUP_CONFIGS:
            raise InvalidConfig(f"there is no setting {name!r}; the settings are {', '.join(sorted(GROUP_CONFIGS))}")
        config.pop(name, None)
    for name, value in values.items():
        if value is not None:
            config[name] = validate(GROUP_CONFIGS, name, config_text(value), kafka_defaults)
    in_force = effective(GROUP_CONFIGS, config, kafka_defaults)
    if int(in_force["share.session.timeout.ms"]) <= int(in_force["share.heartbeat.interval.ms"]):
        raise InvalidConfig("share.session.timeout.ms must be greater than share.heartbeat.interval.ms")
    return config


def _values_and_reset(changes: Changes) -> tuple[Mapping[str, ConfigValue | None], list[str]]:
    reset = changes.get("reset", [])
    if reset is None:
        raise wrong("/reset", "must be an array, not null")
    if not isinstance(reset, list):
        raise InvalidConfig("reset must be an array of the names of settings")
    if "config" in changes:
        config = changes["config"]
        others = changes.keys() - {"config", "reset"}
        if others:
            raise wrong(f"/{escaped(min(others))}", "belongs into `config`, beside the other settings")
        if not isinstance(config, dict):
            raise wrong("/config", f"must be an object of settings by name{', not null' if config is None else ''}")
        return config, reset
    values: dict[str, ConfigValue | None] = {}
    for name, value in changes.items():
        if name == "reset":
            continue
        if isinstance(value, dict):
            raise wrong(f"/{escaped(name)}", "must be a string, a number or a boolean, not an object")
        if isinstance(value, list):
            raise InvalidConfig(f"{name} must have one value, not an array")
        values[name] = value
    return values, reset
