"""What each call needs and shows, as its row says; and rights, beside a simple model."""

import itertools
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_gateway.http.access.shown import filtered
from sharequeue_gateway.http.answers.page_tokens import PageTokens

from sharequeue.protocol import apis
from sharequeue.protocol.access.columns import Access, Shown, names_of
from sharequeue.protocol.access.rights import CLUSTER_NAME, INCLUDE_DESCRIBE, MOST_ANSWERS, Rights
from sharequeue.protocol.configs import dead_letter_topic_name, group_of_dead_letters
from sharequeue.protocol.messages.access import Acl, Operation, ResourceType
from sharequeue.protocol.types import MAX_NAME_LENGTH
from sharequeue_http.answer import Answer
from sharequeue_http.application.app import App, serve
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.codec import decoder_of

ROWS = {row.operation_id: row for row in vars(apis).values() if isinstance(row, Api)}
CALLED = {name: row for name, row in ROWS.items() if not row.internal}
PATH = {"topic": "t", "group": "g", "transaction": "x", "key_id": "k", "member_id": "m", "partition": "0"}
ACKNOWLEDGEMENT = b'{"topic":"a","partition":0,"first_offset":0,"last_offset":0,"type":"accept"}'
T, G, X, C = KINDS = get_args(get_args(ResourceType)[0])
READ, WRITE, CREATE, DELETE, DESCRIBE, ALTER = OPERATIONS = get_args(get_args(Operation)[0])

NEEDS: dict[str, list[tuple[bytes | None, set[tuple[Operation, ResourceType, str]]]]] = {
    **{name: [(None, {(WRITE, T, "t")})] for name in ("produceArrow", "produceRawRecord")},
    "produceRecords": [
        (b'{"records":[{"value":1}]}', {(WRITE, T, "t")}),
        (b'{"records":[{"value":1}],"unique":{"until_group":"g"}}', {(WRITE, T, "t"), (DESCRIBE, G, "g")}),
    ],
    "fetchRecords": [
        (
            b'{"topics":["b"],"topic_partitions":[{"topic":"c","partitions":[0]}]}',
            {(READ, G, "g"), (READ, T, "b"), (READ, T, "c")},
        ),
        (b'{"acknowledgements":[' + ACKNOWLEDGEMENT + b"]}", {(READ, G, "g"), (READ, T, "a")}),
        (b'{"atomic":true,"acknowledgements":[' + ACKNOWLEDGEMENT + b"]}", {(READ, G, "g"), (READ, T, "a")}),
    ],
    "acknowledgeRecords": [
        (b'{"member_id":"m","acknowledgements":[' + ACKNOWLEDGEMENT + b"]}", {(READ, G, "g"), (READ, T, "a")}),
        (
            b'{"member_id":"m","acknowledgements":['
            + ACKNOWLEDGEMENT
            + b'],"produce":[{"topic":"p","records":[{"value":1}]}]}',
            {(READ, G, "g"), (READ, T, "a"), (WRITE, T, "p")},
        ),
    ],
    "readRecords": [(None, {(READ, T, "t")})],
    "scheduleRecords": [
        (b'{"records":[{"value":1,"delay_ms":1}]}', {(WRITE, T, "t")}),
        (b'{"records":[{"value":1,"delay_ms":1}],"unique":{"until_group":"g"}}', {(WRITE, T, "t"), (DESCRIBE, G, "g")}),
    ],
    "cancelScheduledRecords": [(b'{"key":"k"}', {(WRITE, T, "t")})],
    "listScheduledRecords": [(None, {(READ, T, "t")})],
    "listDue": [(None, set())],
    "listRecordBatches": [(None, {(READ, T, "t")})],
    "putSchedule": [(b'{"cron":"* * * * *","record":{"value":1}}', {(WRITE, T, "t")})],
    **{name: [(None, {(WRITE, T, "t")})] for name in ("updateSchedule", "deleteSchedule")},
    **{name: [(None, {(READ, T, "t")})] for name in ("getSchedule", "listSchedules")},
    "createTopic": [(b'{"name":"n"}', {(CREATE, T, "n")})],
    "describeTopic": [(None, {(DESCRIBE, T, "t")})],
    "updateTopic": [(b'{"partitions":2}', {(ALTER, T, "t")})],
    "deleteTopic": [(None, {(DELETE, T, "t")})],
    "deleteRecords": [(b'{"partitions":[{"partition":0,"before_offset":-1}]}', {(DELETE, T, "t")})],
    "listTopics": [(None, set())],
    "listShareGroups": [(None, set())],
    "describeShareGroup": [(None, {(DESCRIBE, G, "g")})],
    "getShareGroupConfig": [(None, {(DESCRIBE, G, "g")})],
    "getShareGroupServiceConfig": [(None, {(DESCRIBE, G, "g")})],
    "listShareGroupOffsets": [(None, {(DESCRIBE, G, "g")})],
    "updateShareGroupConfig": [
        (b'{"config":{"share.isolation.level":"read_committed"}}', {(ALTER, G, "g")}),
        (b'{"config":{"errors.deadletterqueue.topic.name":"d"}}', {(ALTER, G, "g"), (ALTER, C, CLUSTER_NAME)}),
        (b'{"config":{"errors.deadletterqueue.consumer.group":"h"}}', {(ALTER, G, "g"), (DESCRIBE, G, "h")}),
        (b'{"config":{"errors.deadletterqueue.consumer.group":""}}', {(ALTER, G, "g")}),
        (b'{"reset":["errors.deadletterqueue.topic.name"]}', {(ALTER, G, "g"), (ALTER, C, CLUSTER_NAME)}),
    ],
    "shareGroupHeartbeat": [
        (b'{"member_id":"m","subscribed_topic_names":["b"]}', {(READ, G, "g"), (DESCRIBE, T, "b")}),
        (b'{"member_id":"m","member_epoch":3}', {(READ, G, "g")}),
    ],
    "leaveShareGroup": [(None, {(READ, G, "g")})],
    "deleteShareGroup": [(None, {(DELETE, G, "g")})],
    "deleteShareGroupOffsets": [(None, {(ALTER, G, "g"), (READ, T, "t")})],
    "resetShareGroupOffsets": [
        (b'{"to":"earliest","topics":[{"topic":"b"}]}', {(ALTER, G, "g"), (READ, T, "b")}),
        (b'{"to":"earliest"}', {(ALTER, G, "g")}),
    ],
    "redriveDeadLetters": [(b"{}", {(READ, G, "g")}), (b'{"topic":"b"}', {(READ, G, "g"), (WRITE, T, "b")})],
    "dropDeadLetters": [(b"{}", {(READ, G, "g")}), (b'{"topic":"b"}', {(READ, G, "g"), (READ, T, "b")})],
    **{name: [(None, {(DESCRIBE, G, "g"), (READ, T, "t")})] for name in ("lookUpRecord", "findRecords")},
    "describeWindow": [(None, {(DESCRIBE, G, "g"), (DESCRIBE, T, "t")})],
    "changeRecord": [(b'{"action":"release","delivery_count":1}', {(ALTER, G, "g"), (READ, T, "t")})],
    "beginTransaction": [(b"{}", set()), (b'{"transactional_id":"i"}', {(WRITE, X, "i")})],
    "commitTransaction": [
        (b"{}", set()),
        (
            b'{"acknowledgements":[{"group_id":"h","member_id":"m","acknowledgements":[' + ACKNOWLEDGEMENT + b"]}]}",
            {(READ, G, "h"), (READ, T, "a")},
        ),
    ],
    "abortTransaction": [(b"{}", set())],
    "terminateTransaction": [(b"{}", {(ALTER, C, CLUSTER_NAME)})],
    "describeTransaction": [(None, set())],
    "listTransactions": [(None, set())],
    "listActivity": [(None, set())],
    "listGroupsByAttention": [(None, set())],
    "metrics": [(None, {(DESCRIBE, C, CLUSTER_NAME)})],
    "livez": [(None, set())],
    "describeService": [(None, set())],
    "readyz": [(None, set())],
    **{name: [(None, {(DESCRIBE, C, CLUSTER_NAME)})] for name in ("listKeys", "listAcls")},
    **{
        name: [(None, {(ALTER, C, CLUSTER_NAME)})]
        for name in ("createKey", "rotateKey", "revokeKey", "revokeKeys", "addAcls", "removeAcls")
    },
}
QUERIES: dict[str, list[tuple[str | None, set[tuple[Operation, ResourceType, str]]]]] = {
    "streamRecords": [("b,c", {(READ, G, "g"), (READ, T, "b"), (READ, T, "c")})],
    "listInFlightRecords": [(None, {(DESCRIBE, G, "g")}), ("b", {(DESCRIBE, G, "g"), (DESCRIBE, T, "b")})],
    "listSamples": [(None, {(DESCRIBE, C, CLUSTER_NAME)}), ("b", {(DESCRIBE, T, "b")})],
    "listDeadLetters": [(None, {(READ, G, "g")}), ("b", {(READ, G, "g"), (READ, T, "b")})],
    "replaceRecordBatches": [(None, {(DELETE, T, "t")})],
}


def needed(access: Access, request: object) -> set[tuple[Operation, ResourceType, str]]:
    return {
        (need.operation, need.resource_type, name)
        for need in access.needs
        for name in names_of(need.names, PATH, request)
    }


def test_every_call_of_clients_is_in_the_table() -> None:
    assert {*NEEDS, *QUERIES} == set(CALLED)


@pytest.mark.parametrize("operation", CALLED)
def test_a_row_says_what_its_callers_need(operation: str) -> None:
    access = CALLED[operation].access
    assert isinstance(access, Access)
    assert sum(need.each for need in access.needs) <= 1
    assert access.open == (operation in ("livez", "readyz", "describeService"))
    for body, expected in NEEDS.get(operation, []):
        request = None if body is None else decoder_of(CALLED[operation].request).decode(body)
        assert needed(access, request) == expected
    for topic, expected in QUERIES.get(operation, []):
        kind = CALLED[operation].request
        values = {"topic": topic, "member_id": "m"} if operation == "streamRecords" else {"topic": topic}
        assert needed(access, None if operation == "replaceRecordBatches" else kind(**values)) == expected


OF_RECORDS = {
    *("produceRecords", "produceArrow", "produceRawRecord", "scheduleRecords"),
    *("fetchRecords", "streamRecords", "acknowledgeRecords"),
    *("beginTransaction", "commitTransaction", "abortTransaction"),
}
"""The changes that workers and producers make all the time."""


def test_every_other_change_is_a_line_of_the_log() -> None:
    audited = {name for name, row in CALLED.items() if row.access.audited}
    assert audited == {name for name, row in CALLED.items() if row.changes} - OF_RECORDS


def test_a_row_without_needs_does_not_start_the_service() -> None:
    async def handler(_: object) -> None:
        return None

    row = Api("unknown", "GET /v1/unknown", "A call.", tag="Topics")
    serve(App("", ""), row, handler)
    with pytest.raises(ValueError, match="unknown does not say what its callers need"):
        serve(App("", ""), row, handler, guard=object())  # type: ignore[arg-type]


NAMES = ("a", "ab", "abc", "b", "dlq.ab", "*", CLUSTER_NAME)
rights = st.lists(
    st.builds(
        Acl,
        principal=st.sampled_from(("User:x", "User:y")),
        operation=st.sampled_from(OPERATIONS),
        resource_type=st.sampled_from(KINDS),
        resource_name=st.sampled_from(NAMES),
        pattern_type=st.sampled_from(("LITERAL", "PREFIXED")),
    ),
    max_size=6,
)


def covers(right: Acl, operation: Operation, kind: ResourceType, name: str) -> bool:
    """What the docstring of `rights` says, word by word."""
    if (right.resource_type, right.pattern_type) == (kind, "LITERAL"):
        named = right.resource_name in (name, "*")
    else:
        named = right.resource_type == kind and name.startswith(right.resource_name)
    return named and (right.operation == operation or (operation == DESCRIBE and right.operation in INCLUDE_DESCRIBE))


def expected(all_rights: list[Acl], principal: str, operation: Operation, kind: ResourceType, name: str) -> bool:
    wanted = [(kind, name)]
    if kind == T and operation == CREATE:
        wanted.append((C, CLUSTER_NAME))
    if kind == T and operation in (READ, DESCRIBE) and name.startswith("dlq."):
        wanted.append((G, name.removeprefix("dlq.")))
    return principal == "User:root" or any(
        right.principal == principal and covers(right, operation, *resource)
        for right in all_rights
        for resource in wanted
    )


@given(rights)
def test_rights_are_those_of_the_model(all_rights: list[Acl]) -> None:
    found = Rights(all_rights, ["User:root"])
    for principal, operation, kind, name in itertools.product(
        ("User:x", "User:y", "User:root", "User:nobody"), OPERATIONS, KINDS, NAMES
    ):
        allowed = found[principal, operation, kind, name]
        assert allowed == expected(all_rights, principal, operation, kind, name), (principal, operation, kind, name)
        assert allowed or "" not in found.names(principal, operation, kind)[1]


T_AND_MORE = Acl(
    principal="User:a", operation="READ", resource_type="TOPIC", resource_name="t", pattern_type="PREFIXED"
)


class Counted(str):
    """A name that counts how often somebody compares its beginning."""

    looks = 0

    def startswith(self, *arguments: Any) -> bool:
        Counted.looks += 1
        return super().startswith(*arguments)


def test_the_same_question_looks_at_prefixes_once() -> None:
    """Each call asks for the same few names, and a principal may have thousands of prefixes."""
    rights = Rights([T_AND_MORE])
    for name, allowed in (("topic", True), ("other", False)):
        looks = []
        for _ in range(3):
            assert rights["User:a", READ, T, Counted(name)] is allowed
            looks.append(Counted.looks)
        assert looks == looks[:1] * 3


def test_names_that_are_asked_for_once_are_not_kept() -> None:
    """One caller may ask for any number of names, and others stay remembered no longer than those."""
    rights = Rights([T_AND_MORE])
    for number in range(3 * MOST_ANSWERS):
        name = f"t-{number}"
        assert [rights["User:a", operation, T, name] for operation in (READ, WRITE)] == [True, False]
    assert rights["User:a", READ, T, "t" * 250]
    assert ("User:a", READ, T, "t" * 250) not in rights, "no topic has so long a name"
    assert len(rights) <= MOST_ANSWERS


@given(st.text(max_size=120))
def test_a_default_dead_letter_topic_names_its_group(group: str) -> None:
    topic = dead_letter_topic_name(group)
    hashed = len(f"dlq.{group}") > MAX_NAME_LENGTH or len(topic) == MAX_NAME_LENGTH or "." in topic[200:]
    assert group_of_dead_letters(topic) in ({group, None} if hashed else {group})


@pytest.mark.parametrize("topic", ["orders", "dlq", "dlq.a_b", "dlq.a_zz", "dlq.a_ff", "dlq.a b", "dlq." + "a" * 300])
def test_another_topic_is_no_groups(topic: str) -> None:
    assert group_of_dead_letters(topic) is None


def test_an_answer_shows_what_its_caller_may_see() -> None:
    body = b'{"members":[{"names":["a","b"],"to":{"list":[{"topic":"b"},{"topic":"a"},{}]}},{"names":[]}],"count":2}'
    shows = [Shown("members.names", T), Shown("members.to.list", T, "topic")]
    answer = filtered(Answer(body), shows, lambda shown, name: name == "a")
    assert bytes(answer.body) == b'{"members":[{"names":["a"],"to":{"list":[{"topic":"a"}]}},{"names":[]}],"count":2}'
    with_unnamed = filtered(Answer(b'{"l":[{},{"g":"b"}]}'), [Shown("l", G, "g", unnamed=True)], lambda _, __: False)
    assert bytes(with_unnamed.body) == b'{"l":[{}]}'


def test_the_length_of_a_page_token_says_nothing_about_a_name() -> None:
    """A page may end at a name that its caller may not see."""
    tokens = PageTokens("secret")
    assert len({len(tokens.token(("a" * length, 0))) for length in range(1, 50)}) == 1
    place = decoder_of(tuple[str, int])
    assert tokens.place(tokens.token(("ab", 7)), place, "listTopics", None) == ("ab", 7)
