"""Settings of groups and topics: names, defaults and bounds, ours and Kafka's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharequeue.protocol.configs import (
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    dead_letter_topic_name,
    duration_ms,
    effective,
    share_group_config,
    validate,
)
from sharequeue.protocol.errors import KAFKA_CODES, InvalidConfig
from sharequeue.protocol.types import topic_name_fault

WHOLE = {
    name: (configs, config)
    for configs in (GROUP_CONFIGS, TOPIC_CONFIGS)
    for name, config in configs.items()
    if config.kind == "int"
}
"""Their defaults and bounds, ours and Kafka's, are in docs/configuration.md, which a test compares with the table."""


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("kafka_defaults", [False, True], ids=["ours", "kafka"])
def test_dy_007_whole_numbers_have_bounds_and_a_stored_one_is_clamped_when_it_is_read(
    name: str, kafka_defaults: bool
) -> None:
    configs, config = WHOLE[name]
    low, high = config.bounds(kafka_defaults)
    for value in (str(low), str(high), config.default_for(kafka_defaults)):
        assert validate(configs, name, value, kafka_defaults) == value
        assert effective(configs, {name: value}, kafka_defaults)[name] == value
    for stored, read in ((low - 1, low), (high + 1, high)):
        with pytest.raises(InvalidConfig, match=f"{name} must be in the range {low} to {high} inclusive"):
            validate(configs, name, str(stored), kafka_defaults)
        assert effective(configs, {name: str(stored)}, kafka_defaults)[name] == str(read)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.record.lock.duration.ms", "soon"),
        ("share.record.lock.duration.ms", "30000.5"),
        ("share.record.lock.duration.ms", ""),
        ("share.record.lock.duration.ms", "30_000"),
        ("share.record.lock.duration.ms", " 30000 "),
        ("share.record.lock.duration.ms", "+30000"),
        ("share.record.lock.duration.ms", "\uff13\uff10\uff10\uff10\uff10"),
        ("share.renew.acknowledge.enable", "yes"),
        ("share.renew.acknowledge.enable", "True"),
        ("share.isolation.level", "serializable"),
        ("share.auto.offset.reset", "middle"),
        ("share.auto.offset.reset", "by_duration"),
        ("share.auto.offset.reset", "by_duration:"),
        ("share.auto.offset.reset", "by_duration:1h"),
        ("share.auto.offset.reset", "by_duration:P\u0661D"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.auto.offset.reset", "by_duration:PT-1H"),
        ("share.auto.offset.reset", "by_duration:P106751991168D"),
        ("share.auto.offset.reset", f"by_duration:PT{'9' * 5000}S"),
        ("share.auto.offset.reset", "none"),
        ("cleanup.policy", "compact"),
        ("errors.deadletterqueue.topic.name", "__secret"),
        ("errors.deadletterqueue.topic.name", "a/b"),
        ("errors.deadletterqueue.copy.record.enable", "1"),
        ("share.lock", "1"),
        ("retention.ms", "1"),
    ],
)
def test_unknown_settings_and_invalid_values_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        validate(GROUP_CONFIGS, name, value, kafka_defaults=False)
    assert name in raised.value.detail
    assert KAFKA_CODES[raised.value.error] == 40


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.auto.offset.reset", "latest"),
        ("share.auto.offset.reset", "by_duration:PT1H"),
        ("share.isolation.level", "read_committed"),
        ("share.renew.acknowledge.enable", "false"),
        ("errors.deadletterqueue.topic.name", ""),
        ("errors.deadletterqueue.topic.name", "dead"),
    ],
)
def test_valid_values_are_kept_as_given(name: str, value: str) -> None:
    assert validate(GROUP_CONFIGS, name, value, kafka_defaults=False) == value


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("P1D", 86_400_000),
        ("P2DT3H4M5.5S", ((2 * 24 + 3) * 60 + 4) * 60_000 + 5500),
        ("PT0S", 0),
        ("PT0.001S", 1),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("P1Y", None),
        ("P1M", None),
        ("1D", None),
        ("PT1H ", None),
        ("PT1.H", None),
        ("", None),
    ],
)
def test_durations_are_iso_8601(text: str, milliseconds: int | None) -> None:
    assert duration_ms(text) == milliseconds


# What they mean for a group


def test_stored_settings_override_defaults() -> None:
    stored = {
        "share.record.lock.duration.ms": "1500",
        "share.delivery.count.limit": "7",
        "share.partition.max.record.locks": "3",
        "share.auto.offset.reset": "latest",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
        "errors.deadletterqueue.topic.name": "dead",
        "errors.deadletterqueue.copy.record.enable": "false",
    }
    config = share_group_config("g", stored)
    assert config.record_lock_duration_ms == 1500
    assert config.delivery_count_limit == 7
    assert config.partition_max_record_locks == 3
    assert config.auto_offset_reset == "latest"
    assert config.read_committed
    assert not config.renew_acknowledge_enable
    assert (config.dead_letter_topic_name, config.dead_letter_copy_record) == ("dead", False)
    assert config.dead_letter_enabled
    assert not config.count_span


def test_an_empty_dead_letter_topic_turns_dead_letters_off() -> None:
    assert not share_group_config("g", {"errors.deadletterqueue.topic.name": ""}).dead_letter_enabled
    assert share_group_config("g", {}).dead_letter_topic_name == "dlq.g"


def test_kafka_defaults_change_lock_reset_and_dead_letters() -> None:
    config = share_group_config("g", {"share.record.lock.duration.ms": "1500"}, kafka_defaults=True)
    assert config.record_lock_duration_ms == 15_000
    assert config.auto_offset_reset == "latest"
    assert not config.dead_letter_enabled
    assert not config.dead_letter_copy_record
    assert config.count_span


@pytest.mark.parametrize(
    ("group_id", "topic"),
    [
        ("orders", "dlq.orders"),
        ("a.b-c", "dlq.a.b-c"),
        ("a b", "dlq.a_20b"),
        ("a:b", "dlq.a_3ab"),
        ("a_20b", "dlq.a_5f20b"),
        ("é", "dlq._c3_a9"),
    ],
)
def test_the_dead_letter_topic_is_named_after_the_group(group_id: str, topic: str) -> None:
    assert dead_letter_topic_name(group_id) == topic


@given(st.text(min_size=1, max_size=249), st.text(min_size=1, max_size=249))
def test_dead_letter_topics_are_legal_and_no_two_groups_share_one(first: str, second: str) -> None:
    try:
        names = dead_letter_topic_name(first), dead_letter_topic_name(second)
    except UnicodeEncodeError:
        return  # a lone surrogate is no group id: it never arrives in JSON or a path
    assert topic_name_fault(names[0]) is None
    assert (names[0] == names[1]) == (first == second)


def test_a_long_group_id_is_cut_and_hashed() -> None:
    names = {dead_letter_topic_name("g" * 248 + last) for last in "abc"}
    assert len(names) == 3
    assert all(topic_name_fault(name) is None for name in names)


@pytest.mark.parametrize(
    ("changed", "hold_ms"),
    [
        ({"share.paused": "true"}, -1),
        ({"share.paused": "true", "retention.hold": "false"}, 0),
        ({}, 604_800_000),
        ({"retention.hold": "false"}, 0),
        ({"retention.hold.idle.ms": "-1"}, -1),
        ({"retention.hold.idle.ms": "0"}, 60_000),
        ({"retention.hold.idle.ms": "90000"}, 90_000),
        ({"retention.hold.idle.ms": "-1", "retention.hold": "false"}, 0),
    ],
)
def test_rt_016_a_group_holds_the_log_so_long(changed: dict[str, str], hold_ms: int) -> None:
    assert share_group_config("g", changed).hold_ms == hold_ms
