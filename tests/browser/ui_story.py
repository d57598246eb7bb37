"""What the page `/ui` shows in its tests and pictures: topics, groups, workers and what went wrong, on a real stack."""

import json
import random
from typing import Any, Final
from urllib.parse import quote

import httpx

PAYLOADS: Final = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<svg onload=window.pwned=1>",
    "<svg><script>window.pwned=1</script></svg>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'>",
    "<body onload=window.pwned=1>",
    "<details open ontoggle=window.pwned=1>",
    "<input autofocus onfocus=window.pwned=1>",
    "<video><source onerror=window.pwned=1>",
    "<a href='javascript:window.pwned=1'>x</a>",
    "javascript:window.pwned=1",
    "data:text/html,<script>parent.pwned=1</script>",
    '"><script>window.pwned=1</script>',
    "'><img src=x onerror=window.pwned=1>",
    '" onmouseover=window.pwned=1 x="',
    "' autofocus onfocus=window.pwned=1 x='",
    "</title><script>window.pwned=1</script>",
    "</textarea><script>window.pwned=1</script>",
    "</style><script>window.pwned=1</script>",
    "<math><mi xlink:href='javascript:window.pwned=1'>x",
    "<form><button formaction=javascript:window.pwned=1>x",
    "<object data='javascript:window.pwned=1'>",
    "<embed src='javascript:window.pwned=1'>",
    "<link rel=stylesheet href='javascript:window.pwned=1'>",
    "<meta http-equiv=refresh content='0;javascript:window.pwned=1'>",
    "<base href='javascript:window.pwned=1'>",
    "${window.pwned=1}",
    "{{constructor.constructor('window.pwned=1')()}}",
    "<!--><img src=x onerror=window.pwned=1>-->",
    "\u202e<scr\u200bipt>window.pwned=1</scr\u200bipt>",
)
VNODE: Final = {"type": "img", "props": {"src": "x", "onerror": "window.pwned=1"}, "constructor": None, "__v": 1}
"""What a renderer that trusts objects would take for an element."""
REASONS: Final = ("card declined: insufficient funds", "payment provider: HTTP 503", "the address is not complete")


class Story:
    """Calls that make the story."""

    def __init__(self, url: str, seed: int = 7, lock_ms: int = 600_000) -> None:
        self.lock_ms = lock_ms
        self.http = httpx.Client(base_url=url, timeout=60)
        self.random = random.Random(seed)

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, Any] | None = None) -> Any:
        answer = self.http.request(method, f"/v1/{path}", json=body, headers=headers)
        assert answer.is_success, (path, answer.text)
        return answer.json() if answer.content else None

    def produce(self, topic: str, count: int, **more: Any) -> None:
        records = [
            {"key": f"customer-{self.random.randrange(200)}", "value": self.order(), **more} for _ in range(count)
        ]
        self.call("POST", f"topics/{topic}/records", {"records": records})

    def order(self) -> dict[str, Any]:
        items = [{"sku": f"A-{self.random.randrange(99)}", "count": self.random.randrange(1, 4)}]
        return {"order": self.random.randrange(10_000), "items": items, "account": 12345678901234567890, "note": None}

    def work(self, group: str, topic: str, member: str, count: int, verdicts: list[dict[str, Any] | None]) -> int:
        """Fetch as a member, and settle records in turn by `verdicts` (None: keep it). Returns: how many came."""
        wanted = {
            "topics": [topic],
            "member_id": member,
            "max_records": count,
            "max_wait_ms": 0,
            "lock_duration_ms": self.lock_ms,
        }
        settled, number = [], 0
        for batch in self.call("POST", f"share-groups/{group}/fetch", wanted)["batches"]:
            for offset in range(batch["first_offset"], batch["last_offset"] + 1):
                verdict = verdicts[number % len(verdicts)]
                number += 1
                if verdict:
                    place = {"topic": topic, "partition": batch["partition"], "delivery_count": batch["delivery_count"]}
                    settled.append({**place, "first_offset": offset, "last_offset": offset, **verdict})
        for start in range(0, len(settled), 500):
            body = {"member_id": member, "acknowledgements": settled[start : start + 500]}
            assert self.call("POST", f"share-groups/{group}/acknowledge", body)["failed_count"] == 0
        return number

    def mixed(self, accepted: int) -> list[dict[str, Any] | None]:
        """Verdicts in some order: accepted ones, four delayed, three rejected, five that are kept."""
        later = {"type": "release", "delay_ms": 1_800_000, "reason": REASONS[1]}
        reject = [{"type": "reject", "reason": reason} for reason in REASONS]
        verdicts: list[dict[str, Any] | None] = [{"type": "accept"}] * accepted + [later] * 4 + [*reject] + [None] * 5
        self.random.shuffle(verdicts)
        return verdicts

    def shop(self) -> None:
        """A shop: three workers fulfil orders, with trouble; nobody works on the audit; mails wait for their time."""
        self.call("POST", "topics", {"name": "orders", "partitions": 3})
        for _ in range(12):
            self.produce("orders", 50, headers={"trace": f"{self.random.getrandbits(64):016x}"})
        for member in ("worker-1", "worker-2", "worker-3"):
            self.work("fulfilment", "orders", member, 140, self.mixed(30))
        self.call(
            "POST", "share-groups/fulfilment/heartbeat", {"member_id": "worker-1", "subscribed_topic_names": ["orders"]}
        )
        self.work("audit", "orders", "auditor", 120, [{"type": "accept"}])
        mails = [{"key": f"mail-{n}", "delay_ms": 3_600_000 * (n + 1), "value": {"to": n}} for n in range(6)]
        self.call("POST", "topics/mails/scheduled", {"records": mails})
        for name, cron in (("nightly", "0 2 * * *"), ("every-5-minutes", "*/5 * * * *")):
            self.call("PUT", f"topics/mails/schedules/{name}", {"cron": cron, "record": {"value": {"job": name}}})
        begun = self.call("POST", "transactions", {"transactional_id": "billing", "timeout_ms": 600_000})
        headers = {"Transaction-Id": begun["transaction_id"]}
        self.call("POST", "topics/invoices/records", {"records": [{"value": 1}]}, headers)

    def hostile(self) -> str:
        """Texts of an attacker in each place that takes one. Returns: the group, whose id is one of them."""
        group = PAYLOADS[1].replace("/", "")
        records = [
            {"key": text, "value": {text: text, "node": VNODE}, "headers": {text: text}}
            for text in (*PAYLOADS, json.dumps(VNODE))
        ]
        self.call("POST", "topics/hostile/records", {"records": records})
        path = f"share-groups/{quote(group, safe='')}"
        verdicts: list[dict[str, Any] | None] = [{"type": "reject", "reason": text} for text in PAYLOADS]
        for number, text in enumerate(PAYLOADS):
            self.work(quote(text.replace("/", ""), safe=""), "hostile", text[:36], 1, [None])
            heartbeat = {"member_id": text[:36], "subscribed_topic_names": ["hostile"]}
            self.call("POST", f"{path}/heartbeat", heartbeat, {"Client-Id": text.encode()})
            self.call("POST", "transactions", {"transactional_id": text, "timeout_ms": 600_000})
            cron = {"cron": "0 2 * * *", "record": {"key": text, "headers": {text: text}, "value": text}}
            self.call("PUT", f"topics/hostile/schedules/{number}", cron)
        self.work(path.removeprefix("share-groups/"), "hostile", "worker", 40, verdicts)
        scheduled = [{"key": text, "delay_ms": 3_600_000, "value": text} for text in PAYLOADS]
        self.call("POST", "topics/hostile/scheduled", {"records": scheduled})
        begun = self.call("POST", "transactions", {"transactional_id": PAYLOADS[0], "timeout_ms": 600_000})  # again
        self.call(
            "POST", "topics/hostile/records", {"records": [{"value": 1}]}, {"Transaction-Id": begun["transaction_id"]}
        )
        return group
