"""Metrics of groups, under Kafka's meanings (KIP-932, metrics)."""

from prometheus_client import Counter, Gauge

from sharequeue_coordinator.share_group.changes import GroupState

GROUPS = Gauge("sharequeue_coordinator_group_count", "Share groups, of all group coordinators (group-count).")
GROUPS_BY_STATE = Gauge(
    "sharequeue_coordinator_share_group_count", "Share groups by state, of all group coordinators.", ["state"]
)
REBALANCES = Counter(
    "sharequeue_coordinator_share_group_rebalances", "Group epochs that rose (share-group-rebalance-count)."
)


def show(groups: int, with_members: int) -> None:
    """Show how many groups there are."""
    GROUPS.set(groups)
    GROUPS_BY_STATE.labels(GroupState.EMPTY).set(groups - with_members)
    GROUPS_BY_STATE.labels(GroupState.STABLE).set(with_members)
    GROUPS_BY_STATE.labels(GroupState.DEAD).set(0)
