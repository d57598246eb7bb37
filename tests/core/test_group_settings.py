"""The settings of a group after a change."""

import pytest

from sharequeue.protocol.configs import changed_group_config
from sharequeue.protocol.errors import InvalidConfig

LIMIT, LOCK, LEVEL = "share.delivery.count.limit", "share.record.lock.duration.ms", "share.isolation.level"
SESSION, HEARTBEAT = "share.session.timeout.ms", "share.heartbeat.interval.ms"
STORED = {LIMIT: "7", LOCK: "60000"}
MEANT: dict[str, tuple[dict[str, str], list[str], dict[str, str]]] = {
    "a value": ({LIMIT: "3"}, [], {LIMIT: "3", LOCK: "60000"}),
    "reset": ({}, [LIMIT], {LOCK: "60000"}),
    "both": ({LEVEL: "read_committed"}, [LIMIT, LOCK], {LEVEL: "read_committed"}),
    "a name in both": ({LIMIT: "3"}, [LIMIT], {LIMIT: "3", LOCK: "60000"}),
    "nothing": ({}, [], STORED),
}
REFUSED: dict[str, tuple[dict[str, str], list[str], str]] = {
    "an unknown setting": ({"share.limit": "5"}, [], "share.limit"),
    "an unknown setting to reset": ({}, ["share.limit"], "share.limit"),
    "a value out of bounds": ({LIMIT: "0"}, [], LIMIT),
    "a session as short as the interval": ({SESSION: "6000", HEARTBEAT: "6000"}, [], SESSION),
}


@pytest.mark.parametrize(("changes", "reset", "expected"), MEANT.values(), ids=MEANT.keys())
def test_changes(changes: dict[str, str], reset: list[str], expected: dict[str, str]) -> None:
    assert changed_group_config(STORED, changes, reset, kafka_defaults=False) == expected


@pytest.mark.parametrize(("changes", "reset", "named"), REFUSED.values(), ids=REFUSED.keys())
def test_an_invalid_change_is_refused(changes: dict[str, str], reset: list[str], named: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        changed_group_config(STORED, changes, reset, kafka_defaults=False)
    assert named in refused.value.detail
