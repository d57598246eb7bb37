"""Rules of topics: names, partitions, settings and their changes."""

import pytest
from sharequeue_coordinator.metadata.topic_rules import check_growth, check_new

from sharequeue.protocol.configs import TOPIC_CONFIGS, changed_config, effective
from sharequeue.protocol.errors import KAFKA_CODES, InvalidConfig, InvalidPartitions, InvalidTopic
from sharequeue.protocol.types import group_id_fault, topic_name_fault


@pytest.mark.parametrize("name", ["a", "orders", "A.b_c-9", "x" * 249, "...", "_", "dlq.g", "._."])
def test_valid_topic_names_are_accepted(name: str) -> None:
    assert topic_name_fault(name) is None
    assert check_new(name, 1, {}, 100) == {}


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "é", "a\n", "__orders", "a:b", "a\x00"])
def test_invalid_topic_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidTopic) as raised:
        check_new(name, 1, {}, 100)
    assert KAFKA_CODES[raised.value.error] == 17


@pytest.mark.parametrize("group_id", ["g", "a:b:c", "mit Leerzeichen", "é" * 249, "...", "%2F"])
def test_valid_group_ids_are_accepted(group_id: str) -> None:
    assert group_id_fault(group_id) is None


@pytest.mark.parametrize("group_id", ["", ".", "..", "a/b", "a\x00b", "a\x7f", "a\x9f", "x" * 250, "a\nb"])
def test_invalid_group_ids_are_refused(group_id: str) -> None:
    assert group_id_fault(group_id) is not None


@pytest.mark.parametrize("partitions", [0, -1, 101])
def test_a_topic_has_at_least_one_partition_and_at_most_the_limit(partitions: int) -> None:
    with pytest.raises(InvalidPartitions) as raised:
        check_new("t", partitions, {}, 100)
    assert "1 to 100 partitions" in raised.value.detail
    assert raised.value.limit == (100 if partitions > 100 else None)
    check_new("t", 100, {}, 100)


def test_partitions_only_grow() -> None:
    check_growth("t", 3, 3, 100)
    check_growth("t", 3, 100, 100)
    for wanted in (2, 0, 101):
        with pytest.raises(InvalidPartitions):
            check_growth("t", 3, wanted, 100)


def test_settings_change_and_go_back_to_their_defaults() -> None:
    stored = check_new("t", 1, {"retention.ms": "1000", "cleanup.policy": "compact"}, 100)
    assert stored == {"retention.ms": "1000", "cleanup.policy": "compact"}
    stored = changed_config(TOPIC_CONFIGS, stored, {"retention.bytes": "5"}, ["retention.ms", "cleanup.policy"])
    assert stored == {"retention.bytes": "5"}
    assert effective(TOPIC_CONFIGS, stored, False)["retention.ms"] == "-1"
    assert effective(TOPIC_CONFIGS, stored, False)["retention.bytes"] == "5"


def test_resetting_a_setting_never_set_is_allowed() -> None:
    assert changed_config(TOPIC_CONFIGS, {}, {}, ["cleanup.policy"]) == {}


def test_a_value_stored_under_other_bounds_can_be_reset() -> None:
    assert changed_config(TOPIC_CONFIGS, {"max.message.bytes": "99999999999"}, {}, ["max.message.bytes"]) == {}


@pytest.mark.parametrize(
    ("changes", "reset"),
    [
        ({"retention": "1"}, []),
        ({}, ["retention"]),
        ({"retention.ms": "soon"}, []),
        ({"retention.ms": "true"}, []),
        ({"errors.deadletterqueue.group.enable": "1"}, []),
    ],
)
def test_a_refused_change_changes_nothing(changes: dict[str, str], reset: list[str]) -> None:
    stored = {"cleanup.policy": "compact"}
    with pytest.raises(InvalidConfig):
        changed_config(TOPIC_CONFIGS, stored, changes, reset)
    assert stored == {"cleanup.policy": "compact"}
