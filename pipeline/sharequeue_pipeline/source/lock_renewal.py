"""Renewing locks while their records are processed.

A thread per member: a task or a query may be busy in Spark or in the user's code for longer than a lock lasts.
"""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final

from sharequeue.client.consuming.outcomes import RENEW, RENEWED_AT
from sharequeue.repeats import HEARTBEAT
from sharequeue_pipeline import ranges
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.group_client import GroupClient
from sharequeue_pipeline.options import GatewayOptions
from sharequeue_pipeline.ranges import Range

log = logging.getLogger(__name__)

SHORTEST_RENEWAL_S: Final = 0.2


class LockRenewal:
    """Renews the locks of the held ranges in its own thread, each time half of their duration has passed.

    The caller must call `close`, which ends the thread: Spark's worker processes outlive their tasks. `enabled` False:
    nothing is renewed, and there is no thread.
    """

    def __init__(self, gateway: GatewayOptions, group: str, member_id: str, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._gateway = gateway
        self._group = group
        self._member_id = member_id
        self._changed = threading.Condition()
        self._batch: int | None = None
        self._held: list[Range] = []
        self._every_s = 10.0
        self._due = 0.0
        """The time of the next renewal, in seconds of the monotonic clock."""
        self._closed = False
        self._thread: threading.Thread | None = None

    def hold(self, batch: int, held: Sequence[Range], lock_ms: int) -> None:
        """Renew these ranges from now on. Adding ranges to a batch does not postpone the renewal of the others."""
        with self._changed:
            self._every_s = max(SHORTEST_RENEWAL_S, lock_ms / 1000 * RENEWED_AT)
            if not self._held or self._batch != batch:
                self._due = time.monotonic() + self._every_s
            self._batch, self._held = batch, ranges.joined(held)
            self._changed.notify()
            if self._thread is None and self._enabled:
                self._thread = threading.Thread(target=self._run, name="sharequeue renewal", daemon=True)
                self._thread.start()

    def drop(self, batch: int) -> None:
        """Stop renewing this batch and those before it."""
        with self._changed:
            if self._batch is None or self._batch <= batch:
                self._batch, self._held = None, []
                self._changed.notify()

    def close(self) -> None:
        """Stop renewing, and end the thread. The records stay locked until their locks end."""
        with self._changed:
            self._closed = True
            self._batch, self._held = None, []
            self._changed.notify()

    def _run(self) -> None:
        with GroupClient(self._gateway) as gateway:
            while True:
                with self._changed:
                    if self._closed:
                        return
                    batch, held = self._batch, self._held
                    if not held:
                        self._changed.wait()
                        continue
                    if self._changed.wait(max(0.0, self._due - time.monotonic())):
                        continue  # `hold`, `drop` or `close` changed the ranges
                    self._due = time.monotonic() + self._every_s
                try:
                    lost, finished = gateway.acknowledge_held(self._group, self._member_id, held, RENEW)
                except PipelineError as fault:
                    log.warning("the locks of batch %s were not renewed: %s", batch, fault)
                    self._due = min(self._due, time.monotonic() + HEARTBEAT.pause_s)
                    continue
                with self._changed:
                    if self._batch != batch:
                        continue
                    if lost:
                        log.warning("%d ranges of batch %s are no longer held", len(lost), batch)
                    self._held = ranges.divided(self._held, [*lost, *finished])[1]
