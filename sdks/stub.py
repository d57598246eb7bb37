"""Answers as a gateway would that no caller can bring about at will: some refusals, and a gateway that lacks Redis."""

import json
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

DEGRADED: Final = {
    "status": "degraded",
    "dependencies": {"postgresql": "ok", "redis": "no answer"},
    "lacks": ["redis"],
    "works": ["produce", "fetch", "acknowledge", "manage"],
}


class Stub(BaseHTTPRequestHandler):
    """Refuses createTopic with the status in the topic's name. It is ready, without Redis."""

    PROBLEMS: Final = {
        415: ("INVALID_REQUEST", 42, False, True),
        429: ("THROTTLING_QUOTA_EXCEEDED", 89, True, True),
        503: ("REQUEST_TIMED_OUT", 7, True, False),
    }

    def do_GET(self) -> None:
        """Answer readyz."""
        self._answer(200, "application/json", DEGRADED)

    def do_POST(self) -> None:
        """Answer createTopic."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
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

    def _answer(self, status: int, media_type: str, body: Any) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(raw)))
        if status in (429, 503):
            self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Write nothing."""
