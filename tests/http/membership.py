"""Members of groups as tests play them."""

from typing import Any

import httpx

from tests.http.calls import Gateway, Json, good, wait_until

NO_ASSIGNMENT: Json = {"topic_partitions": []}


class Member:
    """One member of a group: sends heartbeats as a client does, and keeps the last answers."""

    def __init__(self, gateway: Gateway, group: str, member_id: str, *topics: str) -> None:
        self._gateway = gateway
        self._group = group
        self.member_id = member_id
        self.topics = list(topics)
        self.epoch = 0
        self.assigned: dict[str, list[int]] = {}

    def try_beat(self, **fields: Any) -> httpx.Response:
        body: Json = {"member_id": self.member_id, "member_epoch": self.epoch}
        if self.epoch == 0:
            body["subscribed_topic_names"] = self.topics
        return self._gateway.http.post(f"/v1/share-groups/{self._group}/heartbeat", json={**body, **fields})

    def beat(self, **fields: Any) -> Json:
        answer: Json = good(self.try_beat(**fields))
        self.epoch = answer["member_epoch"]
        if "assignment" in answer:
            self.assigned = {entry["topic"]: entry["partitions"] for entry in answer["assignment"]["topic_partitions"]}
        return answer

    def beat_until_assigned(self, **assigned: list[int]) -> None:
        def complete() -> bool:
            self.beat()
            return self.assigned == assigned

        wait_until(complete)

    @property
    def count(self) -> int:
        return sum(map(len, self.assigned.values()))


def settle(*members: Member, partitions: int) -> None:
    """Send heartbeats until every member is at one epoch and each partition has a member."""

    def settled() -> bool:
        for member in members:
            member.beat()
        shared = {(topic, p) for member in members for topic, some in member.assigned.items() for p in some}
        return len({member.epoch for member in members}) == 1 and len(shared) == partitions

    wait_until(settled)


def describe(gateway: Gateway, group: str, **query: Any) -> Json:
    return dict(good(gateway.http.get(f"/v1/share-groups/{group}", params=query)))
