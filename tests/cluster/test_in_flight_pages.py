"""listInFlightRecords a page at a time, where several gateways lead."""

import httpx

from tests.cluster.calls import fetch, produce
from tests.cluster.gateways import GatewayCluster

PARTITIONS = 12


def test_pages_of_each_gateway_hold_everything_once(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    cluster.make_spread_topic(clients[0], name, PARTITIONS)
    for partition in range(PARTITIONS):
        produce(clients[0], name, partition, 1 + partition % 3)
    held = 0
    while held < sum(1 + partition % 3 for partition in range(PARTITIONS)):
        answer = fetch(clients[0], name, topics=[name], batch_size=1, max_wait_ms=0)
        held += sum(batch["last_offset"] - batch["first_offset"] + 1 for batch in answer["batches"])

    def pages(client: httpx.Client, page_size: int) -> list[list[tuple[str, int]]]:
        found, query = [], {"page_size": page_size}
        while True:
            page = client.get(f"/v1/share-groups/{name}/in-flight", params=query).json()
            assert "errors" not in page
            found.append([(entry["topic"], entry["partition"]) for entry in page["partitions"]])
            if "next_page_token" not in page:
                return found
            query = {"page_size": page_size, "page_token": page["next_page_token"]}

    everything = [(name, partition) for partition in range(PARTITIONS)]
    for client in clients:
        for page_size in (1, 5, 1000):
            found = pages(client, page_size)
            assert [place for page in found for place in page] == everything
            assert (len(found) == 1) == (page_size == 1000)
