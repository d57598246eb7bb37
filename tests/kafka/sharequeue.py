"""sharequeue's side: one gateway, over HTTP."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx

from tests.http.calls import Gateway, good
from tests.kafka.scripts import LOCK_MS, Level
from tests.kafka.sides import Batch, Ends, GroupOffsets, Settled

SETTINGS: Final = {
    **{f"SHAREQUEUE_{service}_KAFKA_DEFAULTS": "true" for service in ("GATEWAY", "COORDINATOR", "SHARE_COORDINATOR")},
    "SHAREQUEUE_GATEWAY_FLOOR_INTERVAL_MS": "100",  # how long void offsets take to be stored
    "SHAREQUEUE_GATEWAY_SHARE_SESSION_IDLE_MS": str(LOCK_MS),
    "SHAREQUEUE_COORDINATOR_GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS": str(LOCK_MS),
}


class Sharequeue:
    """A player's calls of the gateway at `url`, of a stack with SETTINGS. Close it."""

    name = "sharequeue"

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=60)
        self._gateway = Gateway(self._http)
        self._player = uuid.uuid4().hex[:8]
        self._script = ""
        self._topic_id = self._earlier_id = ""
        self._epochs: dict[str, int] = {}
        self._transactions: dict[str, str] = {}
        self._sessions: dict[tuple[str, int], int] = {}

    def close(self) -> None:
        self._http.close()

    def begin_script(self, name: str, partitions: int) -> None:
        self._script = name
        self._sessions.clear()
        self._topic_id = self._gateway.create_topic(self._script, partitions)["topic_id"]

    def start(self, group: str, reset: str) -> None:
        self._gateway.configure(self._group(group), share_auto_offset_reset=reset)
        self.set_lock(group, LOCK_MS)

    def grow(self, partitions: int) -> None:
        good(self._http.patch(f"/v1/topics/{self._script}", json={"partitions": partitions}))

    def remake(self, partitions: int) -> None:
        assert self._http.delete(f"/v1/topics/{self._script}").status_code == 204
        self._earlier_id = self._topic_id
        self._topic_id = self._gateway.create_topic(self._script, partitions)["topic_id"]

    def settle_late(self, group: str, member: int, settled: Sequence[Settled]) -> set[int]:
        answer = self._settle(group, member, settled, self._earlier_id)
        return {result["kafka_code"] for result in answer.json()["results"]}

    def _group(self, group: str) -> str:
        return f"{self._script}-{group}"

    def begin(self, producer: str) -> None:
        epoch = {"producer_epoch": self._epochs[producer]} if producer in self._epochs else {}
        body = {"transactional_id": f"{producer}-{self._player}", "timeout_ms": LOCK_MS, **epoch}
        begun = good(self._http.post("/v1/transactions", json=body), 201)
        self._epochs[producer] = begun["producer_epoch"]
        self._transactions[producer] = begun["transaction_id"]

    def produce(self, producer: str | None, partition: int, values: Sequence[str]) -> int:
        records = [{"value": value, "partition": partition} for value in values]
        headers = {"Transaction-Id": self._transactions[producer]} if producer else {}
        answer = good(self._http.post(f"/v1/topics/{self._script}/records", json={"records": records}, headers=headers))
        return int(answer["records"][0]["offset"])

    def end(self, producer: str, commit: bool) -> None:
        path = f"/v1/transactions/{self._transactions.pop(producer)}/{'commit' if commit else 'abort'}"
        good(self._http.post(path, json={}))

    def replace(self, producer: str) -> None:
        self._epochs.pop(producer, None)
        self.begin(producer)
        self.end(producer, commit=False)  # it wrote nothing

    def set_level(self, group: str, level: Level) -> None:
        self._gateway.configure(self._group(group), share_isolation_level=level)

    def set_lock(self, group: str, lock_ms: int) -> None:
        self._gateway.configure(self._group(group), share_record_lock_duration_ms=lock_ms)

    def restart(self) -> None:
        """Go on with a gateway that was started again."""
        self._sessions.clear()

    def delete(self, partition: int, before_offset: int) -> None:
        self._gateway.delete_records(self._script, before_offset, partition)

    def fetch(self, group: str, member: int, max_records: int, record_limit: bool, wait_ms: int) -> Sequence[Batch]:
        epoch = self._sessions.get((group, member), 0)
        answer = self._gateway.fetch(
            self._group(group),
            None if epoch else self._script,
            member=f"m{member}",
            share_session_epoch=epoch,
            max_records=max_records,
            acquire_mode="record_limit" if record_limit else "batch_optimized",
            max_wait_ms=wait_ms,
        )
        self._sessions[group, member] = epoch + 1
        return [self._batch(batch) for batch in answer["batches"]]

    def acknowledge(self, group: str, member: int, settled: Sequence[Settled]) -> None:
        answer = good(self._settle(group, member, settled, self._topic_id))
        assert answer["failed_count"] == 0, answer

    def _settle(self, group: str, member: int, settled: Sequence[Settled], topic_id: str) -> httpx.Response:
        acknowledgements = [
            {
                "topic": self._script,
                "topic_id": topic_id,
                "partition": each.partition,
                "first_offset": each.first_offset,
                "last_offset": each.first_offset + len(each.types) - 1,
                "types": each.types,
                "delivery_count": each.delivery_count,
            }
            for each in settled
        ]
        return self._gateway.try_acknowledge(self._group(group), acknowledgements, member=f"m{member}")

    def leave(self, group: str, member: int) -> None:
        if self._sessions.pop((group, member), 0):
            left = self._gateway.try_fetch(self._group(group), member=f"m{member}", share_session_epoch=-1)
            assert left.is_success or left.json()["code"] == "SHARE_SESSION_NOT_FOUND", (
                left.text
            )  # a busy machine lost it

    def ends(self) -> Ends:
        partitions = self._gateway.describe_topic(self._script)["partitions"]
        return Ends(
            [partition["log_end_offset"] for partition in partitions],
            [partition["last_stable_offset"] for partition in partitions],
        )

    def offsets(self, group: str) -> list[GroupOffsets]:
        (topic,) = good(self._http.get(f"/v1/share-groups/{self._group(group)}/offsets"))["topics"]
        return [GroupOffsets(partition["start_offset"], partition["lag"]) for partition in topic["partitions"]]

    def _batch(self, batch: Mapping[str, Any]) -> Batch:
        records = {record["offset"]: self._value(record) for record in batch["records"]}
        return Batch(batch["partition"], batch["first_offset"], batch["last_offset"], batch["delivery_count"], records)

    @staticmethod
    def _value(record: Mapping[str, Any]) -> str:
        return str(record["value"])
