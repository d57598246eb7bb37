"""The leader of a share-partition: even shares, and a new generation moves no more than it must."""

from collections import Counter

from sharequeue_gateway.cluster.generation import Generation, Node

from sharequeue.protocol.types import SharePartitionKey

KEYS = [SharePartitionKey(f"group-{group}", "topic", partition) for group in range(100) for partition in range(30)]


def nodes(*names: str) -> tuple[Node, ...]:
    return tuple(Node(name, f"http://{name}") for name in names)


def leaders(*names: str) -> list[str]:
    generation = Generation(1, nodes(*names))
    return [generation.leader_of(key).node_id for key in KEYS]


def test_a_single_gateway_leads_all() -> None:
    assert set(leaders("a")) == {"a"}


def test_shares_are_even() -> None:
    counts = Counter(leaders("a", "b", "c"))
    assert all(900 < count < 1100 for count in counts.values()), counts


def test_partitions_of_a_group_and_groups_of_a_partition_both_spread() -> None:
    generation = Generation(1, nodes("a", "b", "c"))
    of_group = {generation.leader_of(key).node_id for key in KEYS if key.group_id == "group-7"}
    of_partition = {generation.leader_of(key).node_id for key in KEYS if key.partition == 7}
    assert of_group == of_partition == {"a", "b", "c"}


def test_a_gateway_that_joins_takes_its_share_and_nothing_else_moves() -> None:
    before, after = leaders("a", "b"), leaders("a", "b", "c")
    moved = {(old, new) for old, new in zip(before, after, strict=True) if old != new}
    assert moved == {("a", "c"), ("b", "c")}


def test_share_partitions_of_a_gone_gateway_spread_over_the_others() -> None:
    before, after = leaders("a", "b", "c"), leaders("a", "c")
    assert all(new == old for old, new in zip(before, after, strict=True) if old != "b")
    assert {new for old, new in zip(before, after, strict=True) if old == "b"} == {"a", "c"}


def test_the_order_in_which_gateways_are_named_does_not_matter() -> None:
    assert leaders("a", "b", "c") == leaders("c", "a", "b")


def test_sessions_spread_over_gateways() -> None:
    generation = Generation(1, nodes("a", "b", "c"))
    homes = Counter(generation.home_of("group", f"member-{index}").node_id for index in range(300))
    assert all(70 < count < 130 for count in homes.values()), homes
