"""Up to where retention removes records: limits, floors, cleaning and the ceiling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_gateway.record_log.retention_rule import AskedStarts, RetentionRule, new_log_start, rule_of

from sharequeue.protocol.configs import TOPIC_CONFIGS, effective

KEEP, DELETE = RetentionRule(retention_ms=1, keep=True), RetentionRule(retention_ms=1)
CLEAN = RetentionRule(cleanup=True)
START, END = 10, 40


@pytest.mark.parametrize(
    ("rule", "limits", "ceiling", "floor", "expected"),
    [
        pytest.param(DELETE, 25, 0, 12, 25, id="RT-001 delete does not ask the groups"),
        pytest.param(KEEP, 25, 0, 12, 12, id="RT-002 keep stops at the lowest floor"),
        pytest.param(KEEP, 25, 0, 5, 10, id="RT-003 a floor below the log start moves nothing"),
        pytest.param(KEEP, 25, 0, 30, 25, id="RT-004 keep removes no more than the limits ask for"),
        pytest.param(KEEP, 25, 0, None, 25, id="RT-005 nobody holds: the limits alone"),
        pytest.param(CLEAN, 0, 0, 22, 22, id="RT-006 cleaning goes to the lowest floor"),
        pytest.param(CLEAN, 0, 0, None, 10, id="RT-007 nobody holds: cleaning removes nothing"),
        pytest.param(KEEP._replace(cleanup=True), 12, 0, 22, 22, id="RT-008 cleaning goes beyond the limits"),
        pytest.param(DELETE._replace(cleanup=True), 25, 0, 22, 25, id="RT-009 the limits go beyond cleaning"),
        pytest.param(KEEP, 25, 18, 12, 18, id="RT-010 the ceiling goes over floors"),
        pytest.param(KEEP, 25, 8, 12, 12, id="RT-011 a ceiling below the log start moves nothing"),
        pytest.param(KEEP, 99, 99, 99, 40, id="RT-012 nothing goes beyond the end"),
        pytest.param(RetentionRule(keep=True), 0, 0, 30, 10, id="RT-013 without a limit nothing is removed"),
    ],
)
def test_log_starts(rule: RetentionRule, limits: int, ceiling: int, floor: int | None, expected: int) -> None:
    assert new_log_start(rule, START, END, AskedStarts(limits, ceiling), floor) == expected


@pytest.mark.parametrize(
    ("rule", "limits", "floor", "pointed", "expected"),
    [
        pytest.param(CLEAN, 0, 22, 15, 15, id="RT-016 cleaning stops at what a dead letter points to"),
        pytest.param(CLEAN, 0, 22, 30, 22, id="RT-017 a dead letter behind the floor allows no more than the floor"),
        pytest.param(CLEAN, 0, None, 15, 10, id="RT-018 nobody holds: a dead letter removes nothing"),
        pytest.param(KEEP._replace(cleanup=True), 18, 22, 15, 18, id="RT-019 the limits go beyond dead letters"),
    ],
)
def test_log_starts_beside_dead_letters(
    rule: RetentionRule, limits: int, floor: int | None, pointed: int, expected: int
) -> None:
    assert new_log_start(rule, START, END, AskedStarts(limits), floor, pointed) == expected


OFFSETS = st.integers(0, 60)


@given(st.booleans(), st.booleans(), OFFSETS, OFFSETS, st.none() | OFFSETS)
def test_rt_014_only_a_ceiling_or_delete_goes_over_a_floor(
    keep: bool, cleanup: bool, limits: int, ceiling: int, floor: int | None
) -> None:
    rule = RetentionRule(retention_ms=1, keep=keep, cleanup=cleanup, max_bytes=1)
    new = new_log_start(rule, START, END, AskedStarts(limits, ceiling), floor)
    assert START <= new <= END
    if keep and floor is not None:
        assert new <= max(floor, ceiling, START)
    if floor is None:
        assert new == min(max(limits, ceiling, START), END)


@pytest.mark.parametrize(
    ("kafka_defaults", "changed", "expected"),
    [
        (False, {}, RetentionRule(keep=True)),
        (True, {}, RetentionRule()),
        (False, {"retention.unsettled": "delete", "retention.ms": "5"}, RetentionRule(retention_ms=5)),
        (False, {"retention.bytes": "7"}, RetentionRule(retention_bytes=7, keep=True)),
        (True, {"retention.unsettled": "keep", "cleanup.settled": "true"}, RetentionRule(keep=True, cleanup=True)),
        (False, {"retention.unsettled.max.bytes": "9"}, RetentionRule(keep=True, max_bytes=9)),
        (False, {"cleanup.policy": "compact", "retention.ms": "5", "cleanup.settled": "true"}, RetentionRule()),
    ],
)
def test_rt_015_settings_make_the_rule(kafka_defaults: bool, changed: dict[str, str], expected: RetentionRule) -> None:
    rule = rule_of(effective(TOPIC_CONFIGS, changed, kafka_defaults))
    assert rule == expected
    assert rule.idle == (rule in (RetentionRule(), RetentionRule(keep=True)))
