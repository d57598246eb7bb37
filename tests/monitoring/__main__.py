"""`make monitoring-test`: the alerts and the board of monitoring/ with promtool and a real Prometheus on a real stack.

promtool    checks the rules, and runs alerts_test.yml: each alert fires when it should, and not before
Prometheus  scrapes two gateways and the coordinators while records are produced, accepted, rejected and left alone;
            every query of the rules, of the board and in a sentence of docs/ must be one that it can run, over metrics
            that are there
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from sharequeue.stack.process import free_port
from sharequeue.stack.stack import Stack, temporary_stack
from tests.debian import programs
from tests.shown.kinds import of_kind

MONITORING: Final = Path(__file__).parents[2] / "monitoring"
UNIT_TESTS: Final = Path(__file__).with_name("alerts_test.yml")
SETTINGS: Final = {
    "SHAREQUEUE_GATEWAY_BACKLOG_INTERVAL_MS": "500",
    "SHAREQUEUE_GATEWAY_FLOOR_INTERVAL_MS": "500",
    "SHAREQUEUE_GATEWAY_ACTIVITY_FLUSH_MS": "500",
}
DEADLINE_S: Final = 90
OFTEN_EMPTY: Final = frozenset({"Failures and refusals", "Waiting for a fetch"})
"""Panels without a series while all is well."""


def check_rules(bin_: Path, home: Path) -> None:
    """promtool's own checks, and the unit tests. Raises: CalledProcessError."""
    shutil.copytree(MONITORING, home / "monitoring")
    shutil.copy(UNIT_TESTS, home / "monitoring")
    for command in (
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "alerts.yml"),
        ("test", "rules", UNIT_TESTS.name),
    ):
        subprocess.run([bin_ / "promtool", *command], cwd=home / "monitoring", check=True)
    tested = {
        test["alertname"]
        for each in yaml.safe_load(UNIT_TESTS.read_text())["tests"]
        for test in each.get("alert_rule_test", ())
    }
    missing = {rule["alert"] for rule in rules() if "alert" in rule} - tested
    assert not missing, f"alerts without a test: {missing}"


def rules() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"] for rule in group["rules"]
    ]


def panels() -> list[dict[str, Any]]:
    return [
        panel for panel in json.loads((MONITORING / "grafana.json").read_text())["panels"] if panel["type"] != "row"
    ]


def use(stack: Stack) -> None:
    """Work of every kind, so that each metric has a series."""
    with httpx.Client(base_url=stack.url, timeout=60) as client:

        def call(path: str, body: dict[str, Any]) -> Any:
            return client.post(path, json=body).raise_for_status().json()

        settings = {"config": {"share.record.lock.duration.ms": "1000"}}
        client.patch("/v1/share-groups/billing/config", json=settings).raise_for_status()
        call("/v1/topics/orders/records", {"records": [{"value": number} for number in range(100)]})
        for kind in ("accept", "release", "reject", None):
            fetch = {"topics": ["orders"], "member_id": "w-1", "max_records": 10, "acquire_mode": "record_limit"}
            (batch,) = call("/v1/share-groups/billing/fetch", fetch)["batches"]
            del batch["records"]
            if kind is not None:
                call(
                    "/v1/share-groups/billing/acknowledge",
                    {"member_id": "w-1", "acknowledgements": [{**batch, "type": kind}]},
                )
        client.post("/v1/topics/orders/records", json={"recordz": []})


@contextmanager
def prometheus(bin_: Path, stack: Stack, home: Path) -> Iterator[httpx.Client]:
    """A Prometheus that scrapes the stack each second."""
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    config["global"]["scrape_interval"] = config["global"]["evaluation_interval"] = "1s"
    config["scrape_configs"][0]["static_configs"] = [
        {
            "targets": [service.url.removeprefix("http://")],
            "labels": {"service": re.sub(r" \d+$", "", service.name).replace(" ", "-")},
        }
        for service in stack.services
    ]
    (home / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(MONITORING / "alerts.yml", home)
    port = free_port()
    command = [
        bin_ / "prometheus",
        f"--config.file={home / 'prometheus.yml'}",
        f"--storage.tsdb.path={home / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    process = subprocess.Popen(command)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client
    finally:
        process.terminate()
        process.wait(60)


def ask(client: httpx.Client, query: str) -> list[Any]:
    """The series that a query finds. Fails if Prometheus refuses it."""
    answer = client.get("/api/v1/query", params={"query": query})
    assert answer.status_code == 200, f"{query}: {answer.text}"
    found: list[Any] = answer.json()["data"]["result"]
    return found


def query_of(expression: str) -> str:
    """A query of the board with everything selected."""
    return expression.replace("$__rate_interval", "20s").replace("$group", ".*").replace("$topic", ".*")


def check_queries(client: httpx.Client) -> None:
    """Every query runs, and finds series: those of the board at once or within the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    for panel in panels():
        for target in panel["targets"]:
            query = query_of(target["expr"])
            while not ask(client, query) and panel["title"] not in OFTEN_EMPTY:
                assert time.monotonic() < deadline, f"the panel {panel['title']!r} is empty: {query}"
                time.sleep(0.5)
    shown = of_kind("promql")
    for query in shown:
        ask(client, query)
    names = set(client.get("/api/v1/label/__name__/values").json()["data"])
    texts = (
        shown
        + [rule["expr"] for rule in rules()]
        + [target["expr"] for panel in panels() for target in panel["targets"]]
    )
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    used = {name for text in texts for name in re.findall(r"\bsharequeue[_:][a-z_:]+", text)} - recorded
    seldom = {"sharequeue_removed_unfinished_records_total"}
    assert used - names <= seldom, f"there is no metric {used - names - seldom}"
    assert recorded <= names, f"not recorded: {recorded - names}"
    health = client.get("/api/v1/rules").json()["data"]["groups"]
    faults = {rule["name"]: rule["lastError"] for group in health for rule in group["rules"] if rule.get("lastError")}
    assert not faults, faults


def main() -> int:
    with tempfile.TemporaryDirectory() as home:
        bin_ = programs("prometheus", ("prometheus", "promtool"), Path(home))
        try:
            check_rules(bin_, Path(home))
        except subprocess.CalledProcessError as fault:
            return int(fault.returncode)
        with (
            temporary_stack(Path(home) / "stack", gateways=2, settings=SETTINGS) as stack,
            prometheus(bin_, stack, Path(home)) as client,
        ):
            use(stack)
            deadline = time.monotonic() + DEADLINE_S
            while True:
                try:
                    if len(ask(client, "up == 1")) == len(stack.services):
                        break
                except (httpx.TransportError, AssertionError):
                    pass
                assert time.monotonic() < deadline, "Prometheus does not see every service"
                time.sleep(0.5)
            use_again = time.monotonic()
            while time.monotonic() - use_again < 5:  # rates need growth between two scrapes
                use_one(stack)
                time.sleep(0.5)
            check_queries(client)
    print("monitoring: the rules, their tests and every query of the board hold")
    return 0


def use_one(stack: Stack) -> None:
    with httpx.Client(base_url=stack.url, timeout=60) as client:
        client.post("/v1/topics/orders/records", json={"records": [{"value": 1}]}).raise_for_status()


if __name__ == "__main__":
    sys.exit(main())
