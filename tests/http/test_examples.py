"""The examples of the OpenAPI document are played on a fresh stack, and its answers are those of the document.

After a change that is meant: `RENEW_OPENAPI=1 .venv/bin/pytest tests/http/test_examples.py`, then the same for
`tests/core/test_document.py` and `tests/http/test_openapi.py`.
"""

import json
import os
import time
from pathlib import Path
from typing import Any, Final

import httpx
from jsonschema import Draft202012Validator

import sharequeue.openapi.examples as examples_module
from sharequeue.openapi.examples import STORY, Example, answers
from sharequeue_http.forms.api import Api, path_of
from tests.openapi.public import public_document

ANSWERS: Final = Path(examples_module.__file__).with_name("examples.json")
NOW_MS: Final = 1_767_225_600_000
TRANSACTION_ID: Final = "0b6ff7a6-3c0c-4c9e-9d55-6a1d0c6b2f11"
PRODUCER_EPOCH: Final = 60_000_000
KEY_ID: Final = "3d1f0a5c9b7e2846"
SCHEDULE_ID: Final = "019b7a12-9c00-7c1e-a3d1-5e0f9b2c4000"
PLAIN: Final[dict[str, Any]] = {
    "topic_id": "4799b8f4-4040-412c-b59e-2e8f4ad3c001",
    "__dlq.errors.topic.id": "4799b8f4-4040-412c-b59e-2e8f4ad3c001",
    "transaction_id": TRANSACTION_ID,
    "schedule_id": SCHEDULE_ID,
    "cancelled": [SCHEDULE_ID],
    "next_at_ms": NOW_MS + 86_400_000,
    "deliver_at_ms": NOW_MS + 86_400_000,
    "__scheduled.created_ms": str(NOW_MS),
    "began_at_ms": NOW_MS,
    "died_at_ms": NOW_MS,
    "age_ms": 20,
    "oldest_ready_age_ms": 981,
    "ended_at_ms": NOW_MS + 500,
    "timestamp_ms": NOW_MS,
    "max_timestamp_ms": NOW_MS,
    "hour_ms": NOW_MS,
    "lock_expires_at_ms": NOW_MS + 60_000,
    "available_at_ms": NOW_MS + 3_600_000,
    "reason_at_ms": NOW_MS,
    "expires_at_ms": NOW_MS + 604_800_000,
    "request_id": "5f0c1b9e-8f7b-4d2a-9c1e-3a6d2b7f4e10",
    "leader_epoch": 4,
    "key_id": KEY_ID,
    "created_at_ms": NOW_MS,
    "revoked_at_ms": NOW_MS,
    "size_bytes": 112,
    "client_host": "127.0.0.1",
    "gateways": ["gateway-1"],
    "next_page_token": "eyJhZnRlciI6MX0",
    "seconds_ago": 2,
    "seq": 1,
    "snapshot_epoch": 0,
}
"""What is another value on each stack has one of these in the document."""
SETTINGS: Final = {
    "retention.ms",
    "cleanup.policy",
    "max.message.bytes",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.auto.offset.reset",
}
"""The examples show these of all settings."""
PATIENCE_S: Final = 90
STREAM_ID: Final = "4f1c0a9be27d3358"


def plain(value: Any) -> Any:
    """An answer with the values of PLAIN, some of its settings, and the first rows of stored states."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        answered = {
            name: item for name, item in value.items() if "." not in name or name[:2] == "__" or name in SETTINGS
        }
        if answered.get("producer_epoch"):
            answered["producer_epoch"] = PRODUCER_EPOCH
        return {name: PLAIN.get(name, plain(item[:2] if name == "rows" else item)) for name, item in answered.items()}
    return value


class Player:
    """Plays the story. `record`: take the answers for the document instead of comparing them."""

    def __init__(self, http: httpx.Client, record: bool) -> None:
        self._http = http
        self._record = record
        self._transaction = ""
        self._schedule = ""
        self._key_id = ""
        self._producer_epoch = 0
        self.found: dict[str, Any] = {}

    def play(self, example: Example) -> None:
        deadline = time.monotonic() + (2 if self._record and not example.eventual else PATIENCE_S)
        if self._record and example.eventual:
            time.sleep(7)  # gateways write their counts every five seconds
        while True:
            status, answer = self._call(example)
            assert status == example.answered, (example.name, answer)
            if self._record or not example.eventual or answer == answers().get(example.name):
                break
            assert time.monotonic() < deadline, (example.name, answer)
            time.sleep(0.1)
        if answer is not None and (self._record or not example.varies):
            self.found[example.name] = answer

    def _call(self, example: Example) -> tuple[int, Any]:
        path = dict(example.path)
        if "transaction" in path:
            path["transaction"] = self._transaction
        if "schedule" in path:
            path["schedule"] = self._schedule
        if "key_id" in path:
            path["key_id"] = self._key_id
        headers = dict(example.headers)
        if "Transaction-Id" in headers:
            headers["Transaction-Id"] = self._transaction
        if example.api.streams:
            return self._stream(example)
        body = example.body
        if isinstance(body, dict) and "producer_epoch" in body:
            body = {**body, "producer_epoch": self._producer_epoch}
        json_body = {} if body is None else {"json": body}
        response = self._http.request(
            example.api.method,
            path_of(example.api, **path),
            params={name: json.dumps(each) if isinstance(each, bool) else each for name, each in example.query.items()},
            headers=headers,
            content=example.raw,
            **json_body,
        )
        if response.headers.get("content-type", "").startswith("text/plain"):
            lines = [line for line in response.text.splitlines() if "sharequeue_http_refused" in line]
            return response.status_code, "\n".join(line for line in lines if line.startswith("#")) + "\n"
        if not response.content:
            return response.status_code, None
        answer = response.json()
        if response.status_code == 201 and "transaction_id" in answer:
            self._transaction = answer["transaction_id"]
            self._producer_epoch = answer["producer_epoch"]
        if "scheduled" in answer:
            self._schedule = answer["scheduled"][0]["schedule_id"]
        if "key" in answer and "key_id" in answer:
            self._key_id = self._key_id or answer["key_id"]
            answer["key"] = f"sq_{KEY_ID}_" + "0" * 64 + "_4f1d2c3b"
        for id_of_story, known in ((self._transaction, TRANSACTION_ID), (self._schedule, SCHEDULE_ID)):
            if id_of_story:  # texts name it too
                answer = json.loads(json.dumps(answer).replace(id_of_story, known))
        return response.status_code, plain(answer)

    def _stream(self, example: Example) -> tuple[int, str]:
        """The begin of a stream, up to the first event with records."""
        path = path_of(example.api, **example.path)
        lines = []
        with self._http.stream("GET", path, params=dict(example.query), headers=dict(example.headers)) as response:
            for line in response.iter_lines():
                field, _, value = line.partition(": ")
                if field == "id":
                    lines.append(f"id: {STREAM_ID}.{value.partition('.')[2]}")
                elif field == "data":
                    lines += [f"data: {json.dumps(plain(json.loads(value)), separators=(',', ':'))}", ""]
                    break
                else:
                    lines.append(line)
            return response.status_code, "".join(f"{line}\n" for line in lines)


def test_the_examples_are_answered_as_the_document_says(client: httpx.Client, data_dir: Path) -> None:
    record = bool(os.environ.get("RENEW_OPENAPI"))
    player = Player(client, record)
    for example in STORY:
        player.play(example)
    if record:
        ANSWERS.write_text(json.dumps(player.found, indent=1, ensure_ascii=False) + "\n")
        answers.cache_clear()
    for name, answer in player.found.items():
        assert answer == answers()[name], f"{name}: RENEW_OPENAPI=1 .venv/bin/pytest tests/http/test_examples.py"
    assert answers().keys() - player.found.keys() == {
        example.name for example in STORY if example.varies and not record
    }


def documented() -> list[tuple[Api, dict[str, Any]]]:
    document = public_document()
    return [(example.api, document["paths"][example.api.path][example.api.method.lower()]) for example in STORY]


def test_every_call_has_an_example_of_its_request_and_its_answer() -> None:
    calls = documented()
    assert {api.operation_id for api, _ in calls} == {
        operation["operationId"] for path in public_document()["paths"].values() for operation in path.values()
    }
    for api, operation in calls:
        for content in operation.get("requestBody", {}).get("content", {}).values():
            assert content.get("examples") or api.raw_body, api.operation_id
        for content in operation["responses"][str(api.status)].get("content", {}).values():
            assert content["examples"], api.operation_id
        for parameter in operation["parameters"]:
            assert "example" in parameter or not parameter["required"], (api.operation_id, parameter["name"])


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, refusing fields that it does not name: every field of an answer must be documented."""
    return {"additionalProperties": False, **schema} if "properties" in schema else schema


def test_the_examples_fit_their_schemas() -> None:
    components = {"schemas": {name: closed(each) for name, each in public_document()["components"]["schemas"].items()}}
    checked = 0
    for _, operation in documented():
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        for content in (content for body in bodies for content in body.get("content", {}).values()):
            for example in content.get("examples", {}).values():
                faults = list(
                    Draft202012Validator({**content["schema"], "components": components}).iter_errors(example["value"])
                )
                assert faults == [], example["summary"]
                checked += 1
    assert checked > 50
