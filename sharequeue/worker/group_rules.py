"""The retries of a worker's groups: a backoff and a limit that keep a record alive through an outage of hours."""

import logging
from collections.abc import Sequence
from typing import Final

from sharequeue.protocol import apis
from sharequeue.protocol.configs import retry_waits
from sharequeue.repeats import PART_DIED, Tries
from sharequeue_http.calling.caller import Client
from sharequeue_http.forms.errors import ApiError

log = logging.getLogger("sharequeue.worker")

BACKOFF: Final = "share.retry.backoff.ms"
LIMIT: Final = "share.delivery.count.limit"
WAITS: Final = "1000,3000,9000,27000,81000,243000,600000"
ATTEMPTS: Final = 32
"""With `WAITS`: one second, three times as long each time, at most ten minutes. So the last attempt is more than four
hours after the first one."""


def survived_s(waits_ms: Sequence[int], limit: int) -> float:
    """Return how long a record that always fails is tried before it is dead: the sum of its waits, in seconds."""
    if not waits_ms:
        return 0.0
    listed = waits_ms[: limit - 1]
    return (sum(listed) + waits_ms[-1] * (limit - 1 - len(listed))) / 1000


async def apply(client: Client, group: str) -> None:
    """Give a group that has neither a backoff nor a limit those of a worker; else say how the group's differ.

    A gateway that is away is waited for. What one refuses is logged: the worker runs all the same.
    """
    tries = Tries(PART_DIED)
    while True:
        try:
            await _apply(client, group)
            return
        except ApiError as error:
            log.warning("the retries of the group %s cannot be read or set: %s", group, error.detail)
            if error.problem is not None or not error.error.retriable:  # a gateway has answered
                return
        await tries.pause()


async def _apply(client: Client, group: str) -> None:
    path = {"group": group}
    found = await client.call(apis.GET_SHARE_GROUP_CONFIG, path=path)
    service = await client.call(apis.GET_SHARE_GROUP_SERVICE_CONFIG, path=path)
    most = int(service.service["group.share.max.delivery.count.limit"])
    ours = {BACKOFF: WAITS, LIMIT: str(min(ATTEMPTS, most))}
    if found[BACKOFF] == "" and int(found[LIMIT]) == service.service[f"group.{LIMIT}"]:
        found = await client.call(apis.UPDATE_SHARE_GROUP_CONFIG, {"config": ours, "reset": []}, path=path)
    hours = survived_s(retry_waits(found[BACKOFF]), int(found[LIMIT])) / 3600
    differs = ", ".join(
        f"{name}={found[name]} (a worker's own: {own})" for name, own in ours.items() if found[name] != own
    )
    log.info(
        "the group %s tries a record for %.1f h before it is dead%s", group, hours, f"; {differs}" if differs else ""
    )
