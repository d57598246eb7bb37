"""The settings that both kinds of coordinators have."""

from sharequeue.service.settings import LeaseMs, ServiceSettings, Shards


class CoordinatorSettings(ServiceSettings, frozen=True, kw_only=True):
    """Durations in milliseconds."""

    node_id: str = ""
    """This instance's name, which must be unique. A process takes over from an earlier one of its name: at once if that
    had the same `url`, otherwise when its lease has ended. If it renews its lease, the later process does not start. If
    `node_id` is empty, the name is made of the host's name and the port."""
    url: str = ""
    """The URL at which others reach this instance. If it is empty, it is made of `host` and `port`; an instance that
    binds all addresses uses the host's name."""
    shards: Shards = 16
    """The number of shards that the keys are spread over: groups, or share-partitions. The first start stores it in the
    database, and a start with another number is refused."""
    lease_ms: LeaseMs = 3000
    """How long the other instances wait for a silent one before they take its shards."""
