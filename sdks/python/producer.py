"""Sends records over generated code. A repeat stores nothing twice: all tries have one idempotency key. Copy it into
your project, beside worker.py.
"""

import time
import uuid

from sharequeue_api import ApiException, ProducedRecord, ProduceRecord, ProduceRequest, RecordsApi
from urllib3.exceptions import HTTPError
from worker import MOST_PAUSE_S, problem_of, retry_after_s


class Producer:
    """`deadline_s`: how long `send` tries."""

    def __init__(self, records: RecordsApi, deadline_s: float = 120.0) -> None:
        self._records = records
        self._deadline_s = deadline_s

    def send(self, topic: str, records: list[ProduceRecord], key: str | None = None) -> list[ProducedRecord]:
        """Store the records. When this returns, they are on disk.

        `key`: names these records for 24 hours, in at most 128 characters; without it, `send` makes one. Call again
        with the same key and the same records after an error: they are stored once.

        Raises: ApiException: the service refused them, or is away for too long. HTTPError: there was no answer.
        """
        key = key or str(uuid.uuid4())
        deadline = time.monotonic() + self._deadline_s
        pause_s = 0.1
        while True:
            try:
                request = ProduceRequest(records=records)
                return self._records.produce_records(topic, request, idempotency_key=key, _request_timeout=30.0).records
            except (ApiException, HTTPError) as fault:
                problem = problem_of(fault) if isinstance(fault, ApiException) else None
                pause_s = max(retry_after_s(fault) or 0.0, pause_s)
                if (problem is not None and not problem.retriable) or time.monotonic() + pause_s > deadline:
                    raise
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, MOST_PAUSE_S)
