"""Keeps the locks of records that are being worked on."""

import logging
import threading
from collections.abc import Sequence
from typing import Final

from sharequeue_pipeline import ranges
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.gateway import Gateway
from sharequeue_pipeline.options import Connection
from sharequeue_pipeline.ranges import Range

log = logging.getLogger(__name__)

SHORTEST_RENEWAL_S: Final = 0.2


class Renewal:
    """Renews the locks of what is held, from a thread of its own, each time a third of their time is over."""

    def __init__(self, connection: Connection, group: str, member_id: str) -> None:
        self._connection = connection
        self._group = group
        self._member_id = member_id
        self._changed = threading.Condition()
        self._batch: int | None = None
        self._held: list[Range] = []
        self._every_s = 10.0
        self._thread: threading.Thread | None = None

    def hold(self, batch: int, held: Sequence[Range], lock_ms: int) -> None:
        """From now on renew these, which have just been acquired."""
        with self._changed:
            self._batch, self._held = batch, ranges.joined(held)
            self._every_s = max(SHORTEST_RENEWAL_S, lock_ms / 3000)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sharequeue renewal", daemon=True)
                self._thread.start()

    def drop(self, batch: int | None) -> None:
        """Renew nothing of this batch any more; None: of none."""
        with self._changed:
            if batch is None or self._batch is None or self._batch <= batch:
                self._batch, self._held = None, []
                self._changed.notify()

    def _run(self) -> None:
        with Gateway(self._connection) as gateway:
            while True:
                with self._changed:
                    batch, held = self._batch, self._held
                    if self._changed.wait(self._every_s if held else None):
                        continue  # something else is held now, from this moment on
                try:
                    lost = gateway.acknowledge(self._group, self._member_id, held, "renew")
                except PipelineError as fault:
                    log.warning("the locks of batch %s were not renewed: %s", batch, fault)
                    continue
                if lost and self._batch == batch:
                    log.warning("%d ranges of batch %s are no longer held", len(lost), batch)
