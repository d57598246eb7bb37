"""News of logs: one long Fetch a broker, with a session, over all partitions that are followed."""

from collections.abc import Callable

from sharequeue_kafka.cluster import KafkaCluster, Place
from sharequeue_kafka.fetching import FetchedPart


class Following:
    """Call back when the start, the high watermark or the last stable offset of a followed log moved.

    The answer's `batches` hold the first new batch (read uncommitted), which a reader may use. A partition that begins
    to be followed is asked within 20 ms, beside the long Fetch, and joins it when that ends.
    """

    def __init__(self, cluster: KafkaCluster, moved: Callable[[FetchedPart], None], max_bytes: int = 65_536) -> None:
        self._cluster = cluster

    def follow(self, place: Place, offset: int) -> None:
        """Begin to follow from a log end that the caller knows; news that is there already comes at once."""
        raise NotImplementedError

    def unfollow(self, place: Place) -> None:
        raise NotImplementedError

    async def run(self) -> None:
        """Follow until cancelled."""
        raise NotImplementedError
