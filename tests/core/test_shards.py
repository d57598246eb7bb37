"""Keys to shards, and shards to owners."""

from hypothesis import given
from hypothesis import strategies as st

from sharequeue.protocol.shards import CLUSTER, CLUSTER_SHARD, balance, shard_of, share_key
from sharequeue.protocol.types import SharePartitionKey

nodes = st.sets(st.sampled_from("abcdefg"), min_size=1)


def test_the_shard_of_a_key_never_changes() -> None:
    assert [shard_of(key, 16) for key in ("g", "orders", "grüße", "\ud800")] == [6, 14, 13, 8]
    assert shard_of(CLUSTER, 16) == CLUSTER_SHARD


def test_the_key_of_a_share_partition_is_that_of_kafkas_find_coordinator() -> None:
    assert share_key(SharePartitionKey("a:b", "t", 3)) == "a:b:t:3"


def test_keys_spread_over_the_shards() -> None:
    counts = [0] * 16
    for number in range(16_000):
        counts[shard_of(f"group-{number % 100}:topic:{number // 100}", 16)] += 1
    assert all(700 < count < 1300 for count in counts), counts


@given(st.integers(0, 40), nodes, st.dictionaries(st.integers(0, 39), st.sampled_from("abcdefgxyz")))
def test_shards_are_balanced_from_any_earlier_state(shards: int, live: set[str], owners: dict[int, str]) -> None:
    wanted = balance(range(shards), live, owners)
    assert wanted.keys() == set(range(shards))
    counts = [list(wanted.values()).count(node) for node in live]
    assert sum(counts) == shards
    assert max(counts) - min(counts) <= 1
    assert balance(range(shards), live, wanted) == wanted, "what is balanced stays"


@given(st.integers(1, 40), nodes, st.sampled_from("abcdefg"))
def test_a_join_or_leave_moves_no_more_shards_than_needed(shards: int, live: set[str], other: str) -> None:
    before = balance(range(shards), live, {})
    after = balance(range(shards), live | {other}, before)
    moved = [shard for shard in range(shards) if before[shard] != after[shard]]
    assert all(after[shard] == other for shard in moved)
    assert len(moved) <= -(-shards // len(live | {other}))
    if live - {other}:
        left = balance(range(shards), live - {other}, before)
        assert all(left[shard] == before[shard] for shard in before if before[shard] != other)


def test_without_instances_no_shard_has_an_owner() -> None:
    assert balance(range(3), set(), {0: "a"}) == {}
