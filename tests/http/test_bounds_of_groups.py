"""The group coordinator bounds the topics and the groups; a gateway passes on which bound it is."""

import pytest

from tests.http.calls import Gateway, good, problem


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {"SHAREQUEUE_COORDINATOR_MAX_TOPICS": "1", "SHAREQUEUE_COORDINATOR_MAX_GROUPS": "1"}


def test_a_call_above_a_bound_learns_its_name(own_gateway: Gateway) -> None:
    http = own_gateway.http
    own_gateway.create_topic("first")
    good(http.patch("/v1/share-groups/first/config", json={"config": {"share.heartbeat.interval.ms": "5001"}}))
    heartbeat = {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["first"]}
    good(http.post("/v1/share-groups/first/heartbeat", json=heartbeat))
    above = {
        "max_topics": [
            http.post("/v1/topics", json={"name": "second"}),
            http.post("/v1/topics/second/records", json={"records": [{"value": 1}]}),
        ],
        "max_groups": [
            http.post("/v1/share-groups/second/heartbeat", json=heartbeat),
            own_gateway.try_fetch("second", "first"),
        ],
    }
    for bound, answers in above.items():
        for answer in answers:
            refused = problem(answer, 429, "THROTTLING_QUOTA_EXCEEDED", 89)
            assert (refused["limit"], refused["retriable"], refused["definite"]) == (1, True, True)
            assert bound in refused["detail"]
    own_gateway.produce("first", 1)
