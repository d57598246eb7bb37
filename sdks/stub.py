"""Answers as a gateway would that no caller can bring about at will: some refusals, a lost answer, a lack of Redis."""

import json
from http.server import BaseHTTPRequestHandler
from typing import Any, Final
from urllib.request import Request, urlopen

DEGRADED: Final = {
    "status": "degraded",
    "dependencies": {"postgresql": "ok", "redis": "no answer"},
    "lacks": ["redis"],
    "works": ["produce", "fetch", "acknowledge", "manage"],
}


class Stub(BaseHTTPRequestHandler):
    """Refuses createTopic with the status in the topic's name. It is ready, without Redis.

    It passes produceRecords on to `gateway`, but a client gets no answer to its first try, and a refusal of the second.
    """

    gateway = ""
    tries: Final[dict[tuple[str, str | None], int]] = {}

    PROBLEMS: Final = {
        415: ("INVALID_REQUEST", 42, False, True),
        429: ("THROTTLING_QUOTA_EXCEEDED", 89, True, True),
        503: ("REQUEST_TIMED_OUT", 7, True, False),
    }

    def do_GET(self) -> None:
        """Answer readyz."""
        self._answer(200, "application/json", DEGRADED)

    def do_POST(self) -> None:
        """Answer createTopic and produceRecords."""
        raw = self.rfile.read(int(self.headers["content-length"]))
        if self.path.endswith("/records"):
            self._produce(raw)
            return
        body = json.loads(raw)
        status = int(body["name"].rsplit("-", 1)[1])
        code, number, retriable, definite = self.PROBLEMS[status]
        problem = {
            "type": "urn:sharequeue:problem:stub",
            "title": "Refused",
            "status": status,
            "detail": "refused by the stub",
            "code": code,
            "kafka_code": number,
            "retriable": retriable,
            "definite": definite,
            "request_id": "stub",
        }
        self._answer(status, "application/problem+json", problem)

    def _produce(self, raw: bytes) -> None:
        key = self.headers["idempotency-key"]
        tries = self.tries[self.path, key] = self.tries.get((self.path, key), 0) + 1
        if tries == 2:
            code, number, retriable, definite = self.PROBLEMS[503]
            problem = {"code": code, "kafka_code": number, "retriable": retriable, "definite": definite}
            texts = {
                "type": "urn:sharequeue:problem:stub",
                "title": "Refused",
                "detail": "refused",
                "request_id": "stub",
            }
            self._answer(503, "application/problem+json", {**problem, **texts, "status": 503}, retry_after="1")
            return
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        with urlopen(Request(f"{self.gateway}{self.path}", raw, headers)) as answer:
            body = json.load(answer)
        if tries == 1:
            self.close_connection = True  # the records are stored, and the client does not know
        else:
            self._answer(200, "application/json", body)

    def _answer(self, status: int, media_type: str, body: Any, retry_after: str = "7") -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(raw)))
        if status in (429, 503):
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Write nothing."""
