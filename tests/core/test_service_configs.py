"""Service-wide settings of groups: what contradicts itself, what a group may set, what counts in place of a value."""

import re

import pytest

from sharequeue.protocol.configs import (
    GROUP_CONFIGS,
    changed_group_config,
    group_config_values,
    share_group_config,
)
from sharequeue.protocol.errors import InvalidConfig
from sharequeue.protocol.messages.groups import Clamped
from sharequeue.protocol.service_configs import clamped, group_configs, service_config

LOCK, MIN_LOCK, MAX_LOCK = (f"group.share.{which}record.lock.duration.ms" for which in ("", "min.", "max."))
SESSION, MIN_SESSION, MAX_SESSION = (f"group.share.{which}session.timeout.ms" for which in ("", "min.", "max."))
BEAT, MIN_BEAT = "group.share.heartbeat.interval.ms", "group.share.min.heartbeat.interval.ms"


@pytest.mark.parametrize("kafka_defaults", [False, True], ids=["ours", "kafka"])
def test_without_service_wide_settings_the_rows_of_the_groups_settings_hold(kafka_defaults: bool) -> None:
    service = service_config({}, kafka_defaults)
    assert len(service) == 15
    configs = group_configs(service)
    assert group_config_values("g", {}, kafka_defaults, configs) == group_config_values("g", {}, kafka_defaults)
    for name, config in GROUP_CONFIGS.items():
        assert configs[name].bounds(kafka_defaults) == config.bounds(kafka_defaults)


@pytest.mark.parametrize(
    ("given", "kafka_defaults", "fault"),
    [
        ({MIN_LOCK: 999}, False, f"{MIN_LOCK} must be from 1000 to 43200000, not 999"),
        ({MAX_LOCK: 43_200_001}, False, f"{MAX_LOCK} must be from 1000 to 43200000, not 43200001"),
        ({LOCK: 0}, False, f"{LOCK} must be from 1000 to 43200000, not 0"),
        ({MIN_LOCK: 5000, MAX_LOCK: 4000}, False, f"{MIN_LOCK} (5000) must not be above {MAX_LOCK} (4000)"),
        ({MIN_LOCK: 30_001}, False, f"{MIN_LOCK} (30001) must not be above {LOCK} (30000)"),
        ({MAX_LOCK: 29_999}, False, f"{LOCK} (30000) must not be above {MAX_LOCK} (29999)"),
        ({LOCK: 60_001}, True, f"{LOCK} (60001) must not be above {MAX_LOCK} (60000)"),
        ({LOCK: 14_999}, True, f"{MIN_LOCK} (15000) must not be above {LOCK} (14999)"),
        ({SESSION: 5000}, False, f"{BEAT} (5000) must be below {SESSION} (5000)"),
        ({BEAT: 45_000}, False, f"{BEAT} (45000) must be below {SESSION} (45000)"),
        ({MIN_BEAT: 5000, MIN_SESSION: 5000}, False, f"{MIN_BEAT} (5000) must be below {MIN_SESSION} (5000)"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_in_one_sentence(
    given: dict[str, int], kafka_defaults: bool, fault: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(fault)}$"):
        service_config(given, kafka_defaults)


def test_bounds_may_be_wider_than_kafkas_with_kafka_defaults() -> None:
    configs = group_configs(service_config({MAX_LOCK: 3_600_000}, True))
    stored = changed_group_config({}, {"share.record.lock.duration.ms": "3600000"}, [], True, configs)
    assert share_group_config("g", stored, True, configs).record_lock_duration_ms == 3_600_000


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("1999", "in the range 2000 to 40000 inclusive, not 1999; group.share.min.record.lock.duration.ms is 2000"),
        ("40001", "in the range 2000 to 40000 inclusive, not 40001; group.share.max.record.lock.duration.ms is 40000"),
    ],
)
def test_a_value_out_of_the_bounds_is_refused_with_the_bounds_setting(value: str, sentence: str) -> None:
    configs = group_configs(service_config({MIN_LOCK: 2000, MAX_LOCK: 40_000}, False))
    with pytest.raises(InvalidConfig) as refused:
        changed_group_config({}, {"share.record.lock.duration.ms": value}, [], False, configs)
    assert refused.value.detail == f"share.record.lock.duration.ms must be {sentence}"


TIGHT = {MIN_LOCK: 20_000, LOCK: 25_000, MAX_LOCK: 30_000, MIN_SESSION: 6000, SESSION: 9000, MAX_SESSION: 9000}


@pytest.mark.parametrize(
    ("stored", "used", "said"),
    [
        ({}, {"share.record.lock.duration.ms": "25000", "share.session.timeout.ms": "9000"}, {}),
        ({"share.record.lock.duration.ms": "30000"}, {"share.record.lock.duration.ms": "30000"}, {}),
        (
            {"share.record.lock.duration.ms": "60000"},
            {"share.record.lock.duration.ms": "30000"},
            {"share.record.lock.duration.ms": (60_000, 30_000, MAX_LOCK)},
        ),
        (
            {"share.record.lock.duration.ms": "1000"},
            {"share.record.lock.duration.ms": "20000"},
            {"share.record.lock.duration.ms": (1000, 20_000, MIN_LOCK)},
        ),
        (
            {"share.heartbeat.interval.ms": "9000"},
            {"share.heartbeat.interval.ms": "3000", "share.session.timeout.ms": "9000"},
            {"share.heartbeat.interval.ms": (9000, 3000, "share.session.timeout.ms")},
        ),
        ({"share.heartbeat.interval.ms": "8999"}, {"share.heartbeat.interval.ms": "8999"}, {}),
        (
            {"share.session.timeout.ms": "1000", "share.heartbeat.interval.ms": "500"},
            {"share.session.timeout.ms": "6000", "share.heartbeat.interval.ms": "500"},
            {"share.session.timeout.ms": (1000, 6000, MIN_SESSION)},
        ),
        (
            {"share.assignment.interval.ms": "60001", "share.isolation.level": "read_committed"},
            {"share.assignment.interval.ms": "60000"},
            {"share.assignment.interval.ms": (60_001, 60_000, "kafka_defaults")},
        ),
    ],
)
def test_a_stored_value_outside_shrunk_bounds_is_clamped_and_named(
    stored: dict[str, str], used: dict[str, str], said: dict[str, tuple[int, int, str]]
) -> None:
    configs = group_configs(service_config(TIGHT, False))
    values = group_config_values("g", stored, False, configs)
    assert {name: values[name] for name in used} == used
    named = {name: Clamped(stored=was, used=now, bound=bound) for name, (was, now, bound) in said.items()}
    assert clamped(stored, False, configs) == named
    assert int(values["share.heartbeat.interval.ms"]) < int(values["share.session.timeout.ms"])
    assert changed_group_config(stored, values, [], False, configs) == values, "what is shown can be sent back"


def test_another_setting_can_change_while_the_heartbeat_is_clamped() -> None:
    configs = group_configs(service_config(TIGHT, False))
    stored = {"share.heartbeat.interval.ms": "20000"}
    assert changed_group_config(stored, {"share.delivery.count.limit": "3"}, [], False, configs) == {
        **stored,
        "share.delivery.count.limit": "3",
    }
    with pytest.raises(InvalidConfig, match=r"share.session.timeout.ms must be greater"):
        changed_group_config({}, {"share.heartbeat.interval.ms": "20000"}, [], False, configs)
