"""As many open transactions as a service takes: one more is refused, and all other calls go on."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from bench.processes import resident_bytes
from sharequeue.stack.stack import Stack
from tests.http.calls import good

MOST = 10_000
CLIENTS = 8
MIB = 1 << 20


@pytest.mark.soak
def test_ten_thousand_open_transactions(stack: Stack) -> None:
    gateway = stack.service("gateway").pid
    before = resident_bytes(gateway)

    def begin(client: httpx.Client) -> tuple[int, str]:
        answer = client.post("/v1/transactions", json={"timeout_ms": 900_000})
        if answer.status_code == 201:
            return 201, answer.json()["transaction_id"]
        problem = answer.json()
        assert (problem["code"], problem["limit"], problem["retriable"]) == ("THROTTLING_QUOTA_EXCEEDED", MOST, True)
        assert int(answer.headers["Retry-After"]) >= 1
        return answer.status_code, ""

    with httpx.Client(base_url=stack.url, timeout=60) as client, ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(lambda _: begin(client), range(MOST + 100)))
        told = Counter(status for status, _ in answers)
        assert MOST <= told[201] < MOST + CLIENTS, "begins at the same time do not see each other"
        assert told[429] == len(answers) - told[201]
        assert resident_bytes(gateway) < before + 32 * MIB
        good(client.post("/v1/topics/t/records", json={"records": [{"value": 1}]}))
        assert len(good(client.get("/v1/transactions"))["transactions"]) == 1000, "a page"
        began = [transaction for status, transaction in answers if status == 201]
        aborts = pool.map(lambda each: client.post(f"/v1/transactions/{each}/abort", json={}).status_code, began)
        assert Counter(aborts) == {200: told[201]}
        assert begin(client)[0] == 201
        assert good(client.get("/v1/transactions", params={"state": "aborted"}))["transactions"] == [], (
            "a transaction that wrote nothing leaves no row"
        )
