"""Places keys on shards, and shards on instances. Pure.

Kafka places keys by a hash modulo the partitions of an internal topic.
Here a shard takes the place of such a partition.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final
from zlib import crc32

from sharequeue.protocol.types import SharePartitionKey

CLUSTER_SHARD: Final = -1
"""The shard of the group coordinators for all that belongs to no group: topics, gateways and their generation."""
CLUSTER: Final = "/"
"""The key of that shard. No group has it, because a group id cannot hold `/`."""


def shard_of(key: str, shards: int) -> int:
    """The shard of a key, 0 to `shards` − 1, or CLUSTER_SHARD."""
    return CLUSTER_SHARD if key == CLUSTER else crc32(key.encode("utf-8", "surrogatepass")) % shards


def share_key(key: SharePartitionKey) -> str:
    """`group:topic_id:partition`: the key by which a share-partition is placed."""
    return f"{key.group_id}:{key.topic_id}:{key.partition}"


def balance(shards: Iterable[int], nodes: Collection[str], owners: Mapping[int, str]) -> dict[int, str]:
    """Assign shards to nodes: counts differ by at most one, and as few shards as possible move.

    Args:
        nodes: the live instances. owners: the current owners; shards without one are left out.
    Returns: a node for every shard, the same on each instance; empty without nodes.
    """
    if not nodes:
        return {}
    ordered = sorted(shards)
    kept: dict[str, list[int]] = {node: [] for node in sorted(nodes)}
    for shard in ordered:
        owner = owners.get(shard)
        if owner in kept:
            kept[owner].append(shard)
    least, more = divmod(len(ordered), len(kept))
    by_count = sorted(kept, key=lambda node: (-len(kept[node]), node))
    room = {node: least + (place < more) for place, node in enumerate(by_count)}
    wanted: dict[int, str] = {}
    for node, own in kept.items():
        for shard in own[: room[node]]:
            wanted[shard] = node
    places = (node for node in kept for _ in range(room[node] - min(room[node], len(kept[node]))))
    wanted.update(zip((shard for shard in ordered if shard not in wanted), places, strict=True))
    return wanted
