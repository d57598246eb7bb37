"""Plays the cases of a file with the generated Python client. The environment says where the gateway is.

Prints one line for each case, and `N passed, N failed`.
"""

import base64
import functools
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import sharequeue_api
from acknowledger import NotAcknowledged
from producer import Producer, UnexpectedAnswer, problem_of, said
from sharequeue_api import (
    ApiClient,
    ApiException,
    Configuration,
    ConsumerRecord,
    FetchedBatch,
    Problem,
    ProduceRecord,
)
from urllib3.exceptions import HTTPError
from worker import Handler, Release, Worker

Json = dict[str, Any]
BODIES = {
    "createTopic": "CreateTopicRequest",
    "updateTopic": "UpdateTopicRequest",
    "deleteRecords": "DeleteRecordsRequest",
    "replaceRecordBatches": "ReplaceRecordBatchesRequest",
    "produceRecords": "ProduceRequest",
    "scheduleRecords": "ScheduleRequest",
    "cancelScheduledRecords": "CancelScheduledRequest",
    "fetchRecords": "FetchRequest",
    "beginTransaction": "BeginTransactionRequest",
    "commitTransaction": "CommitTransactionRequest",
    "acknowledgeRecords": "AcknowledgeRequest",
    "shareGroupHeartbeat": "ShareGroupHeartbeatRequest",
    "updateShareGroupConfig": "UpdateShareGroupConfigRequest",
    "resetShareGroupOffsets": "ResetShareGroupOffsetsRequest",
    "redriveDeadLetters": "RedriveDeadLettersRequest",
}
PATIENCE_S = 60.0
IDLE_S = 15  # a fetch without an answer ends after 20


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


def client(url: str) -> ApiClient:
    return ApiClient(Configuration(host=url, retries=0))


def keyed(name: str) -> ApiClient:
    """A client of the gateway that wants keys: with a `good` one, with a `poor` one that has no rights, with `none`."""
    url, token = os.environ["SHAREQUEUE_GUARDED_URL"], os.environ.get(f"SHAREQUEUE_KEY_{name.upper()}")
    configuration = Configuration(host=url, access_token="sq_ended")
    if name == "poor":
        configuration = Configuration(host=url, access_token=token)
    else:
        configuration.access_token = token
    return ApiClient(configuration)


class Unexpected(Exception):
    """The answer is not what the case expects."""


class Player:
    """Plays the steps of one case. `values`: of the `${names}` in its texts."""

    def __init__(self, values: Json) -> None:
        self._values = values
        self._api = client(os.environ["SHAREQUEUE_URL"])
        self._stub = client(os.environ["SHAREQUEUE_STUB_URL"])

    def play(self, step: Json) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._play_once(step)
                return
            except Unexpected:
                if not step.get("eventually") or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _play_once(self, step: Json) -> None:
        meanwhile = step.get("meanwhile")
        other = threading.Timer(meanwhile["after_ms"] / 1000, self.play, [meanwhile["step"]]) if meanwhile else None
        if other is not None:
            other.start()
        started = time.monotonic()
        found = self._call(step)
        took_ms = (time.monotonic() - started) * 1000
        if other is not None:
            other.join()
        if "expect" not in step:
            return
        expected = self.filled(step["expect"])
        check(expected, found, "")
        if took_ms < step.get("min_ms", 0):
            raise Unexpected(f"it took {took_ms:.0f} ms")
        for name, place in step.get("save", {}).items():
            value: Any = found["answer"]
            for part in place.split("."):
                value = value[int(part)] if isinstance(value, list) else value[part]
            self._values[name] = value

    def _call(self, step: Json) -> Json:
        """The answer, or the Problem, with the status and the seconds of Retry-After."""
        if step["call"] == "streamRecords":
            return self._stream(step, len(step["expect"].get("answer", {}).get("events", ())))
        api = self._stub if step.get("stub") else self._api
        api = keyed(step["key"]) if "key" in step else api
        name = snake(step["call"])
        owner = next(kind for kind in vars(sharequeue_api).values() if isinstance(kind, type) and hasattr(kind, name))
        arguments: Json = {**self.filled(step.get("path", {})), **self.filled(step.get("query", {}))}
        arguments |= {
            header.lower().replace("-", "_"): value for header, value in self.filled(step.get("headers", {})).items()
        }
        if "isolation_level" in arguments:
            arguments["isolation_level"] = sharequeue_api.IsolationLevel(arguments["isolation_level"])
        if "bytes" in step:
            arguments["body"] = base64.b64decode(step["bytes"])
        elif step.get("body") == {} and step["call"] not in BODIES:
            arguments["body"] = {}
        elif "body" in step:
            model = BODIES[step["call"]]
            arguments[snake(model)] = getattr(sharequeue_api, model).from_dict(self.filled(step["body"]))
        cancel_ms = step.get("cancel_after_ms")
        arguments["_request_timeout"] = 60 if cancel_ms is None else cancel_ms / 1000
        try:
            answer = getattr(owner(api), f"{name}_with_http_info")(**arguments)
        except ApiException as fault:
            if not isinstance(fault.data, Problem):
                raise Unexpected(f"{fault.status} is not a typed Problem: {fault.body}") from None
            after = (fault.headers or {}).get("Retry-After")
            return {"status": fault.status, "problem": json.loads(fault.data.to_json()), "retry_after": after}
        except HTTPError:
            if cancel_ms is None:
                raise
            return {}
        data = answer.data
        return {
            "status": answer.status_code,
            "answer": json.loads(data.to_json()) if hasattr(data, "to_json") else data,
        }

    def _stream(self, step: Json, count: int) -> Json:
        """The first events of a stream, each with its id. Generated code would wait for the end of the stream."""
        place = urlsplit(os.environ["SHAREQUEUE_URL"])
        path = f"/v1/share-groups/{quote(self.filled(step['path']['group']))}/stream"
        connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
        try:
            connection.request(
                "GET", f"{path}?{urlencode(self.filled(step['query']))}", headers=self.filled(step["headers"])
            )
            answer = connection.getresponse()
            if answer.status != 200:
                return {"status": answer.status, "problem": json.load(answer)}
            events: list[Json] = []
            event_id = ""
            while len(events) < count and (line := answer.readline().decode()):
                name, _, value = line.rstrip("\n").partition(": ")
                if name == "id":
                    event_id = value
                elif name == "data":
                    events.append({"id": event_id, "data": json.loads(value)})
            return {"status": 200, "answer": {"events": events}}
        finally:
            connection.close()

    def filled(self, value: Any) -> Any:
        if isinstance(value, str):
            whole = re.fullmatch(r"\${(\w+)}", value)
            if whole:
                return self._values[whole[1]]
            return re.sub(r"\${(\w+)}", lambda found: str(self._values[found[1]]), value)
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        return {name: self.filled(item) for name, item in value.items()} if isinstance(value, dict) else value

    def work(self, spec: Json) -> None:
        """The producer stores each record once. The worker handles all, in the order of `handled`."""
        topic, group = self._values["topic"], self._values["group"]
        sent = [ProduceRecord(**record) for record in spec["records"]]
        guarded = keyed("good") if "refused" in spec else None
        stub = sharequeue_api.RecordsApi(guarded or self._stub)
        trace = {"traceparent": spec["trace"]} if "trace" in spec else {}
        Producer(stub, inject=lambda headers: headers.update(trace)).send(
            topic, sent
        )  # the stub loses an answer, and then refuses
        handled: list[str] = []
        lost: list[str] = []

        def handle(record: ConsumerRecord, batch: FetchedBatch) -> None:
            first = batch.delivery_count == 1
            if record.value == "bad" and first:
                raise ValueError("not today" + 1024 * "…")  # a reason holds 1,024 characters
            if record.value == "at once" and first:
                raise Release("not yet \ud800", delay_ms=0)  # which is not the backoff of the group
            if record.value == "refused" and first:
                raise Release("the stub refuses this", delay_ms=0)
            if record.value == "interrupt":
                signal.raise_signal(signal.SIGINT)
            if record.value == "slow":
                time.sleep(spec["slow_ms"] / 1000)
            named = "number" if isinstance(record.value, (float, Decimal)) else record.value
            named = (record.headers or {})["traceparent"] if trace else named
            handled.append(f"{named} {batch.delivery_count}")
            if len(handled) == len(spec["records"]):
                worker.stop()

        def tell(fault: NotAcknowledged) -> None:
            lost.append(f"{fault.acknowledgement.first_offset} {fault.code}")

        records = stub if spec.get("through_stub") else sharequeue_api.RecordsApi(guarded or self._api)
        lock_ms = spec["lock_duration_ms"]
        worker = Worker(records, group, [topic], handle, lock_duration_ms=lock_ms, on_error=tell)
        ending = threading.Timer(60, worker.stop)
        ending.start()
        interrupted = run(worker)
        ending.cancel()
        if (handled, lost, interrupted) != (spec["handled"], spec.get("lost", []), spec.get("interrupted", False)):
            raise Unexpected(f"handled: {handled}, lost: {lost}, interrupted: {interrupted}")
        for key, codes in spec.get("refused", {}).items():
            meet_refusals(sharequeue_api.RecordsApi(keyed(key)), group, topic, handle, codes)
        if interrupted:
            end_idle_workers(sharequeue_api.RecordsApi(self._stub), group, "empty", handle)
            end_idle_workers(sharequeue_api.RecordsApi(self._stub), group, "away", handle)
            meet_a_login_page(sharequeue_api.RecordsApi(self._stub), group, handle)


def end_idle_workers(records: sharequeue_api.RecordsApi, group: str, topic: str, handle: Handler) -> None:
    """A worker that waits for records, or for the service, ends at once: by an interrupt, and by a stop."""
    interrupt = functools.partial(signal.pthread_kill, threading.main_thread().ident or 0, signal.SIGINT)
    for by_interrupt in (True, False):
        worker = Worker(records, group, [topic], handle)
        ending = threading.Timer(1.5, interrupt if by_interrupt else worker.stop)
        ending.start()
        started = time.monotonic()
        try:
            interrupted = run(worker)
        finally:
            ending.cancel()
        if interrupted != by_interrupt or time.monotonic() - started > IDLE_S:
            raise Unexpected(f"a worker of {topic} goes on; by an interrupt: {by_interrupt}")


def meet_a_login_page(records: sharequeue_api.RecordsApi, group: str, handle: Handler) -> None:
    """It is no success, and no reason to go on for ever."""
    for topic in ("login-302", "login-200", "login-401", "login-403", "login-json"):
        sending = functools.partial(Producer(records).send, topic, [ProduceRecord(value="one")])
        for act in (sending, Worker(records, group, [topic], handle).run):
            try:
                act()
            except UnexpectedAnswer as fault:
                if os.environ["SHAREQUEUE_STUB_URL"] not in str(fault) or "a proxy wants a login" not in str(fault):
                    raise Unexpected(f"it does not say from where: {fault}") from None
            else:
                raise Unexpected(f"{topic} is taken for a success")


def meet_refusals(
    records: sharequeue_api.RecordsApi, group: str, topic: str, handle: Handler, codes: list[str]
) -> None:
    """Without the right a producer and a worker end, each with a code of the gateway."""
    sending = functools.partial(Producer(records).send, topic, [ProduceRecord(value="one")])
    acts: list[Callable[[], object]] = [sending, Worker(records, group, [topic], handle).run]
    for act, code in zip(acts, codes, strict=True):
        try:
            act()
        except ApiException as fault:
            problem = problem_of(fault)
            if problem is None or problem.code != code:
                raise Unexpected(f"not {code}: {said(fault)}") from None
        else:
            raise Unexpected(f"{code} is taken for a success")


def run(worker: Worker) -> bool:
    """Whether an interrupt ended it."""
    try:
        worker.run()
    except KeyboardInterrupt:
        return True
    return False


def check(expected: Any, found: Any, place: str) -> None:
    """Raises: Unexpected: a value that is expected is another one. What is not expected may be anything."""
    if expected == "$absent":
        fits = found is None
    elif expected == "$any":
        fits = found is not None
    elif isinstance(expected, dict):
        fits = isinstance(found, dict)
        for name, value in expected.items() if fits else ():
            check(value, found.get(name), f"{place}/{name}")
    elif isinstance(expected, list):
        fits = isinstance(found, list) and len(found) == len(expected)
        for index, value in enumerate(expected if fits else ()):
            check(value, found[index], f"{place}/{index}")
    else:
        fits = found == expected
    if not fits:
        raise Unexpected(f"{place or 'the answer'} is {json.dumps(found)[:300]}, not {json.dumps(expected)[:300]}")


def main() -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    cases = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    failed = 0
    for case in cases:
        name = f"python-{case['id']}"
        player = Player({"topic": name, "group": name, "large": "x" * 1_100_000})
        try:
            for step in case.get("steps", ()):
                player.play(step)
            if "worker" in case:
                player.work(case["worker"])
            for step in case.get("then", ()):
                player.play(step)
            print(f"ok {case['id']}")
        except Exception as fault:
            failed += 1
            print(f"FAILED {case['id']}: {type(fault).__name__}: {str(fault)[:500]}")
    print(f"{len(cases) - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
