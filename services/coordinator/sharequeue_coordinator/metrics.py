"""The group coordinator's metrics; docs/metrics.md lists them. Groups: Kafka's meanings (KIP-932)."""

from typing import Final

from sharequeue_coordinator.share_group.changes import ShareGroupState
from sharequeue_http.distribution import kinds_of

Counter, Gauge, _ = kinds_of("group coordinator")

TOPICS: Final = Gauge("sharequeue_coordinator_topics", "Topics.")
METADATA_VERSION: Final = Gauge(
    "sharequeue_coordinator_metadata_version", "Version of the change feed that gateways follow."
)
GROUPS: Final = Gauge("sharequeue_coordinator_group_count", "Share groups of all group coordinators (group-count).")
GROUPS_BY_STATE: Final = Gauge(
    "sharequeue_coordinator_share_group_count",
    "Share groups of all group coordinators by state: Empty, Stable or Dead (always 0) (share-group-count).",
    ["state"],
)
SHARE_PARTITIONS: Final = Gauge(
    "sharequeue_coordinator_share_partition_count", "Initialised share-partitions of all groups (num-partitions)."
)
REBALANCES: Final = Counter(
    "sharequeue_coordinator_share_group_rebalances",
    "Rises of a group epoch at this instance: members joined, left or changed their subscription, topics changed, "
    "offsets were reset (share-group-rebalance-rate, -count).",
)


def show(groups: int, with_members: int, share_partitions: int) -> None:
    """Show how many groups exist, how many of them have members, and how many share-partitions they have."""
    SHARE_PARTITIONS.set(share_partitions)
    GROUPS.set(groups)
    GROUPS_BY_STATE.labels(ShareGroupState.EMPTY).set(groups - with_members)
    GROUPS_BY_STATE.labels(ShareGroupState.STABLE).set(with_members)
    GROUPS_BY_STATE.labels(ShareGroupState.DEAD).set(0)
