"""The settings of a group: which bodies of updateShareGroupConfig mean what."""

from typing import Any

import msgspec
import pytest
from sharequeue_coordinator.share_group.configs import changed_config

from sharequeue.protocol.errors import ApiError, InvalidConfig, InvalidRequest
from sharequeue.protocol.messages.groups import AnyConfigChanges

LIMIT, LOCK, LEVEL = "share.delivery.count.limit", "share.record.lock.duration.ms", "share.isolation.level"
STORED = {LIMIT: "7", LOCK: "60000"}
MEANT: dict[str, tuple[Any, dict[str, str]]] = {
    "a text": ({"config": {LIMIT: "3"}}, {LIMIT: "3", LOCK: "60000"}),
    "a number": ({"config": {LIMIT: 3}}, {LIMIT: "3", LOCK: "60000"}),
    "a boolean": (
        {"config": {"share.renew.acknowledge.enable": False}},
        {**STORED, "share.renew.acknowledge.enable": "false"},
    ),
    "null in config": ({"config": {LIMIT: None}}, {LOCK: "60000"}),
    "reset": ({"reset": [LIMIT]}, {LOCK: "60000"}),
    "both": ({"config": {LEVEL: "read_committed"}, "reset": [LIMIT, LOCK]}, {LEVEL: "read_committed"}),
    "a name in both": ({"config": {LIMIT: "3"}, "reset": [LIMIT]}, {LIMIT: "3", LOCK: "60000"}),
    "nothing": ({}, STORED),
    "empty ones": ({"config": {}, "reset": []}, STORED),
    "the older form": ({LIMIT: 3, LOCK: None}, {LIMIT: "3"}),
    "the older form with reset": ({LIMIT: "3", "reset": [LOCK]}, {LIMIT: "3"}),
}
REFUSED: dict[str, tuple[Any, type[ApiError], str]] = {
    "both forms": ({"config": {}, LIMIT: "3"}, InvalidRequest, LIMIT),
    "an unknown field": ({"config": {}, "confg": "3"}, InvalidRequest, "confg"),
    "config as null": ({"config": None}, InvalidRequest, "config"),
    "reset as null": ({"reset": None}, InvalidRequest, "reset"),
    "config as a text": ({"config": "x"}, InvalidRequest, "config"),
    "config as an array": ({"config": ["x"]}, InvalidRequest, "config"),
    "reset as a text": ({"reset": "x"}, InvalidConfig, "reset"),
    "an object for a value": ({LIMIT: {"value": "5"}}, InvalidRequest, LIMIT),
    "an array for a value": ({LIMIT: ["5"]}, InvalidConfig, LIMIT),
    "an unknown setting": ({"config": {"share.limit": "5"}}, InvalidConfig, "share.limit"),
    "an unknown setting to reset": ({"reset": ["share.limit"]}, InvalidConfig, "share.limit"),
    "a value out of bounds": ({"config": {LIMIT: "0"}}, InvalidConfig, LIMIT),
}


def decoded(body: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body), type=AnyConfigChanges)


@pytest.mark.parametrize(("body", "expected"), MEANT.values(), ids=MEANT.keys())
def test_changes_of_either_form(body: Any, expected: dict[str, str]) -> None:
    assert changed_config(STORED, decoded(body), kafka_defaults=False) == expected


@pytest.mark.parametrize(("body", "kind", "named"), REFUSED.values(), ids=REFUSED.keys())
def test_changes_that_mean_nothing_are_refused(body: Any, kind: type[ApiError], named: str) -> None:
    with pytest.raises(kind) as refused:
        changed_config(STORED, decoded(body), kafka_defaults=False)
    assert named in refused.value.detail
