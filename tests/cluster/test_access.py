"""Keys and rights at several gateways: the one that keeps a share session checks the topics that it keeps."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharequeue.stack.stack import Stack, temporary_stack
from tests.conftest import NewDatabase
from tests.http.access import ADMIN, SETTINGS, Access, caller
from tests.http.calls import acknowledge_range, good, problem, when_loaded

MEMBERS = ("m1", "m2", "m3", "m4")
"""Their sessions are at different gateways."""


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack")


@pytest.fixture(scope="module")
def stack(data_dir: Path, new_database: NewDatabase, new_redis: object) -> Iterator[Stack]:
    assert callable(new_redis)
    stores = {"postgres_url": new_database(), "redis_url": new_redis()}
    with temporary_stack(data_dir, **stores, gateways=2, settings=SETTINGS) as stack:
        yield stack


def test_a_session_at_another_gateway_serves_what_its_caller_may_read(stack: Stack, data_dir: Path, name: str) -> None:
    other, user = f"{name}-other", "User:reader"
    with contextlib.ExitStack() as opened:
        access = Access(stack, data_dir)
        opened.callback(access.close)
        admin = opened.enter_context(caller(stack, access.key(ADMIN)))
        key = access.key(user)
        gateways = [opened.enter_context(caller(stack, key, url)) for url in stack.urls]
        for topic in (name, other):
            admin.create_topic(topic, partitions=4)
        access.allow(user, "READ", "GROUP", name)
        right = access.allow(user, "READ", "TOPIC", name, "PREFIXED")
        access.allow(user, "READ", "TOPIC", name)

        def fetch(gateway: int, member: str, epoch: int, **fields: object) -> dict:
            body = {"member_id": member, "share_session_epoch": epoch, "max_wait_ms": 0, **fields}
            url = f"/v1/share-groups/{name}/fetch"
            return dict(good(when_loaded(lambda: gateways[gateway].http.post(url, json=body))))

        for member in MEMBERS:
            assert fetch(0, member, 0, topics=[name, other], max_records=0)["errors"] == []
        access.withdraw(right)
        admin.produce(other, 1)
        for epoch, gateway in ((1, 0), (2, 1)):
            for member in MEMBERS:
                answer = fetch(gateway, member, epoch)
                assert answer["batches"] == []
                assert {(error["topic"], error["kafka_code"]) for error in answer["errors"]} == {(other, 29)}
        for member in MEMBERS:
            body = {
                "member_id": member,
                "share_session_epoch": 3,
                "acknowledgements": [acknowledge_range(other, 0, 0, "accept")],
            }
            refused = gateways[1].http.post(f"/v1/share-groups/{name}/acknowledge", json=body)
            problem(refused, 403, "TOPIC_AUTHORIZATION_FAILED", 29)


def test_a_principal_in_a_header_is_not_believed_without_the_token(stack: Stack) -> None:
    header = {"sharequeue-principal": "User%3Aadmin"}
    with caller(stack, None) as anybody:
        for path in ("/v1/sessions/g/fetch", "/v1/share-groups/g/fetch"):
            answer = anybody.http.post(path, json={"topics": ["t"], "member_id": "m"}, headers=header)
            assert answer.status_code == 401
