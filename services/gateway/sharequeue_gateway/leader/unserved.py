"""For how long records of share-partitions have waited for a fetch."""

from collections.abc import Iterator

from sharequeue_gateway.leader.led_share_partition import LedSharePartition


class Unserved:
    """Share-partitions with records that wait for a fetch, by group; the one that waits longest first.

    The cost of an event does not depend on how many there are.
    """

    def __init__(self) -> None:
        self._by_group: dict[str, dict[LedSharePartition, None]] = {}

    def note(self, led: LedSharePartition, now_ms: int) -> None:
        """Records wait from now on, unless some did before."""
        if not led.unserved_since_ms:
            led.unserved_since_ms = now_ms
            self._by_group.setdefault(led.key.group_id, {})[led] = None

    def forget(self, led: LedSharePartition) -> None:
        """A fetch got records of it, or none are left."""
        if led.unserved_since_ms:
            led.unserved_since_ms = 0
            of_group = self._by_group[led.key.group_id]
            del of_group[led]
            if not of_group:
                del self._by_group[led.key.group_id]

    def longest_ms(self, now_ms: int) -> Iterator[tuple[str, int]]:
        """Each group, with the waiting time of the share-partition that waits longest."""
        for group_id, of_group in list(self._by_group.items()):
            yield group_id, now_ms - next(iter(of_group)).unserved_since_ms
