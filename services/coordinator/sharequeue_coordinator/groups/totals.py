"""Counts the groups and share-partitions of all group coordinators together, and bounds them."""

from sharequeue_coordinator.metadata.topic_admin import ROOM_S
from sharequeue_http.forms.errors import Throttled


class Totals:
    """Counted in the database now and then, with what began at this instance since."""

    def __init__(self, max_groups: int, max_share_partitions: int) -> None:
        self._max_groups = max_groups
        self._max_share_partitions = max_share_partitions
        self._groups = self._share_partitions = 0

    def counted(self, groups: int, share_partitions: int) -> None:
        self._groups, self._share_partitions = groups, share_partitions

    def begin(self, groups: int, share_partitions: int) -> None:
        """So many more are about to be stored. Raises: Throttled: that would be too many."""
        groups += self._groups
        share_partitions += self._share_partitions
        if groups > max(self._groups, self._max_groups):
            raise Throttled(
                f"there are {self._groups} groups, and max_groups of the group coordinator allows no more:"
                " delete groups, or raise it",
                limit=self._max_groups,
                retry_after_s=ROOM_S,
            )
        if share_partitions > max(self._share_partitions, self._max_share_partitions):
            raise Throttled(
                f"all groups have {self._share_partitions} share-partitions, and max_share_partitions of the group"
                " coordinator allows no more: delete groups or their offsets, or raise it",
                limit=self._max_share_partitions,
                retry_after_s=ROOM_S,
            )
        self._groups, self._share_partitions = groups, share_partitions
