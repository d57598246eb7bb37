"""Answers as a gateway would that no caller can bring about at will: some refusals, a lost answer, a lack of Redis."""

import contextlib
import json
import re
from http.server import BaseHTTPRequestHandler
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

DEGRADED: Final = {
    "status": "degraded",
    "dependencies": {"postgresql": "ok", "redis": "no answer"},
    "lacks": ["redis"],
    "works": ["produce", "fetch", "acknowledge", "manage"],
}


REFUSED: Final = "the stub refuses this"
MOST_ACKNOWLEDGEMENTS: Final = 2
AWAY: Final = "away"
EMPTY: Final = "empty"
IGNORED: Final = "ignored"
DOUBTED: Final = "doubted"
FOREIGN: Final = "foreign"
NUMBERS: Final = {b'"1e400"': b"1e400", b'"5000 digits"': b"9" * 5000}
"""The texts that the stub stores as numbers, which not every language has."""
LOGIN: Final = re.compile(rb"login-(\d+)")
OTHER: Final = {"status": "UP"}
"""The JSON of another program."""


def _is_ignored(acknowledgement: dict[str, Any]) -> bool:
    topic = acknowledgement["topic"]
    return IGNORED in topic or (DOUBTED in topic and acknowledgement["first_offset"] > 1)


class Stub(BaseHTTPRequestHandler):
    """Refuses createTopic with the status in the topic's name. It is ready, without Redis.

    It passes produceRecords on to `gateway`, but a client gets no answer to its first try, and a refusal of the second.
    It passes the calls of share groups on, but refuses an acknowledgement with the reason REFUSED, whose record it then
    releases itself, and more than MOST_ACKNOWLEDGEMENTS in one request. A fetch of the topic AWAY is to be repeated
    after an hour, and one of EMPTY waits until its client hangs up. Acknowledgements of a topic with the word IGNORED
    are `ignored`, and those of a topic with the word DOUBTED beyond offset 1; the answer to the first one of offset 0
    is lost. For the topics `login-<status>` a login
    page answers, and another program for `login-json` and for acknowledgements of a topic with the word FOREIGN.
    """

    gateway = ""
    tries: Final[dict[tuple[str, str | None], int]] = {}

    PROBLEMS: Final = {
        422: ("INVALID_REQUEST", 42, False, True),
        415: ("INVALID_REQUEST", 42, False, True),
        429: ("THROTTLING_QUOTA_EXCEEDED", 89, True, True),
        503: ("REQUEST_TIMED_OUT", 7, True, False),
    }

    def do_GET(self) -> None:
        """Answer readyz; the login page, after a redirect."""
        if self.path == "/login":
            self._answer(200, "text/html", "<html>login</html>")
        else:
            self._answer(200, "application/json", DEGRADED)

    def do_POST(self) -> None:
        """Answer createTopic, produceRecords, and the calls of share groups."""
        raw = self.rfile.read(int(self.headers["content-length"]))
        login = LOGIN.search(self.path.encode() + raw)
        if login or self.path == "/login":
            self._answer(int(login[1]) if login else 200, "text/html", "<html>login</html>")
            return
        body = json.loads(raw)
        acknowledgements = body.get("acknowledgements", [])
        if b"login-json" in self.path.encode() + raw or (acknowledgements and FOREIGN in acknowledgements[0]["topic"]):
            self._answer(200, "application/json", OTHER)
            return
        if self.path.endswith("/records"):
            self._produce(raw)
            return
        if not self.path.startswith("/v1/share-groups/"):
            self._refuse(int(body["name"].rsplit("-", 1)[1]))
            return
        if body.get("topics") == [AWAY]:
            self._refuse(503, retry_after="3600")
        elif body.get("topics") == [EMPTY]:
            with contextlib.suppress(ConnectionError):
                self.connection.recv(1)
        elif len(acknowledgements) > MOST_ACKNOWLEDGEMENTS:
            self._refuse(422)
        elif REFUSED in [acknowledgement.get("reason") for acknowledgement in acknowledgements]:
            if len(acknowledgements) == 1:  # so that no case waits for the end of a lock
                self._ask(raw.replace(REFUSED.encode(), b"released by the stub"), {})
            self._refuse(422)
        elif acknowledgements and _is_ignored(acknowledgements[0]):
            results = [{"status": "ignored"} for _ in acknowledgements]
            self._answer(
                200, "application/json", {"results": results, "failed_count": 0, "acquisition_lock_timeout_ms": 30000}
            )
        else:
            doubted = acknowledgements and DOUBTED in acknowledgements[0]["topic"]
            self._pass_on(raw, {}, loses_answer=bool(doubted) and self._count(body["member_id"]) == 1)

    def _produce(self, raw: bytes) -> None:
        key = self.headers["idempotency-key"]
        for text, number in NUMBERS.items():
            raw = raw.replace(text, number)
        tries = self._count(key)
        if tries == 2:
            self._refuse(503, retry_after="1")
        else:
            self._pass_on(raw, {"Idempotency-Key": key} if key else {}, loses_answer=tries == 1)

    def _count(self, key: str | None) -> int:
        """How often this was called for the path and the key."""
        tries = self.tries[self.path, key] = self.tries.get((self.path, key), 0) + 1
        return tries

    def _pass_on(self, raw: bytes, headers: dict[str, str], *, loses_answer: bool = False) -> None:
        answer = self._ask(raw, headers)
        if loses_answer:
            self.close_connection = True  # the records are stored, and the client does not know
        else:
            self._answer(*answer)

    def _ask(self, raw: bytes, headers: dict[str, str]) -> tuple[int, str, Any]:
        """Return the gateway's status, media type and body."""
        request = Request(f"{self.gateway}{self.path}", raw, {"Content-Type": "application/json", **headers})
        try:
            with urlopen(request) as answer:
                return 200, "application/json", json.load(answer)
        except HTTPError as refusal:
            return refusal.code, "application/problem+json", json.load(refusal)

    def _refuse(self, status: int, retry_after: str = "7") -> None:
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
        self._answer(status, "application/problem+json", problem, retry_after)

    def _answer(self, status: int, media_type: str, body: Any, retry_after: str = "7") -> None:
        raw = json.dumps(body).encode() if "json" in media_type else body.encode()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/login")
        self.send_header("Connection", "close")  # else the JDK sends the next request on it, before it sees the end
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(raw)))
        if status in (429, 503):
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Write nothing."""
