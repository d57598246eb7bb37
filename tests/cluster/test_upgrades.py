"""What begins only when every gateway knows it: transactions, and batches that are stored compressed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.cluster.calls import make_topic
from tests.cluster.conftest import LEASE_MS, NewCluster
from tests.cluster.gateways import GatewayCluster
from tests.http.database import sql


@pytest.fixture(scope="module")
def stack(new_cluster: NewCluster) -> Iterator[Stack]:
    """A stack of this module's own: a gateway of it is replaced."""
    with new_cluster() as stack:
        yield stack


@contextmanager
def earlier_release(stack: Stack, node_id: str) -> Iterator[None]:
    """A gateway that registers, and renews its lease, as those did that knew neither transactions nor compression."""
    token = (Path(stack._data_dir) / "cluster.token").read_text().strip()
    ended = threading.Event()
    gateway = {"node_id": node_id, "url": stack.service("gateway 3").url, "keeps_readers": True}
    with httpx.Client(
        base_url=stack.service("group coordinator").url, headers={"Authorization": f"Bearer {token}"}, timeout=60
    ) as http:

        def renew() -> None:
            while not ended.wait(LEASE_MS / 5000):
                http.post("/v1/cluster/gateways/renew", json=gateway).raise_for_status()

        http.post("/v1/cluster/gateways", json=gateway).raise_for_status()
        renewing = threading.Thread(target=renew)
        renewing.start()
        try:
            yield
        finally:
            ended.set()
            renewing.join()


def test_no_transaction_begins_while_a_gateway_of_an_earlier_release_runs(
    stack: Stack, cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    """It would deliver records that are not committed. What is open goes on, and is committed."""
    make_topic(clients[0], name, 1)
    newer = clients[:2]

    def begin(client: httpx.Client) -> httpx.Response:
        return client.post("/v1/transactions", json={})

    begun = begin(clients[2])
    assert begun.status_code == 201
    headers = {"Transaction-Id": begun.json()["transaction_id"]}
    stack.service("gateway 3").stop()
    with earlier_release(stack, "gateway-2"):
        cluster.wait_until(lambda: all(begin(client).status_code == 503 for client in newer))
        for client in newer:
            problem = begin(client).json()
            assert (problem["kafka_code"], problem["retriable"], problem["definite"]) == (15, True, True)
            assert "upgrade every gateway" in problem["detail"]
        records = {"records": [{"value": 1}]}
        newer[0].post(f"/v1/topics/{name}/records", json=records, headers=headers).raise_for_status()
        newer[1].post(f"/v1/transactions/{begun.json()['transaction_id']}/commit", json={}).raise_for_status()
    stack.service("gateway 3").start()
    cluster.wait_until_known(cluster.gateways)
    cluster.wait_until(lambda: all(begin(client).status_code == 201 for client in clients))


def test_nothing_is_compressed_while_a_gateway_of_an_earlier_release_runs(
    stack: Stack, cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    """It could not read compressed batches. Those of both forms lie in one partition then."""
    make_topic(clients[0], name, 1)
    database = stack._postgres_url or ""
    forms: list[bool] = []

    def compresses(client: httpx.Client) -> bool:
        """Whether a gateway stores a batch compressed."""
        records = {"records": [{"value": "x" * 10_000}]}
        client.post(f"/v1/topics/{name}/records", json=records).raise_for_status()
        (row,) = sql(
            database,
            """SELECT uncompressed_bytes IS NOT NULL FROM log.record_batches WHERE topic_id = $1
               ORDER BY base_offset DESC LIMIT 1""",
            client.get(f"/v1/topics/{name}").json()["topic_id"],
        )
        forms.append(row[0])
        return bool(row[0])

    cluster.wait_until_known(cluster.gateways)
    assert all(compresses(client) for client in clients)
    stack.service("gateway 3").stop()
    with earlier_release(stack, "gateway-2"):
        cluster.wait_until(lambda: not any(compresses(client) for client in clients[:2]))
    stack.service("gateway 3").start()
    cluster.wait_until_known(cluster.gateways)
    cluster.wait_until(lambda: all(compresses(client) for client in clients))
    page = clients[2].get(f"/v1/topics/{name}/partitions/0/records", params={"max_records": 1000}).json()
    assert [record["value"] for record in page["records"]] == ["x" * 10_000] * len(forms)
    assert {True, False} == set(forms)
