"""For how long share-partitions have had records that no fetch was given."""

from collections.abc import Iterator

from sharequeue_gateway.leader.led_share_partition import LedSharePartition


class Unserved:
    """Share-partitions that are known to have something for a fetch, by group, those that wait longest first.

    Each event costs the same however many there are.
    """

    def __init__(self) -> None:
        self._by_group: dict[str, dict[LedSharePartition, None]] = {}

    def note(self, led: LedSharePartition, now_ms: int) -> None:
        """It has something since now, unless it is known for longer."""
        if not led.unserved_since_ms:
            led.unserved_since_ms = now_ms
            self._by_group.setdefault(led.key.group_id, {})[led] = None

    def forget(self, led: LedSharePartition) -> None:
        """A fetch was given something of it, or it has nothing any more."""
        if led.unserved_since_ms:
            led.unserved_since_ms = 0
            of_group = self._by_group[led.key.group_id]
            del of_group[led]
            if not of_group:
                del self._by_group[led.key.group_id]

    def longest_ms(self, now_ms: int) -> Iterator[tuple[str, int]]:
        """Groups, and for how long the share-partition of each that waits longest has had something."""
        for group_id, of_group in list(self._by_group.items()):
            yield group_id, now_ms - next(iter(of_group)).unserved_since_ms
