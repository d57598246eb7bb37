"""Calls gateways: every one, or one that answers. The calls about a group have their functions here."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, Literal

from sharequeue.protocol import apis
from sharequeue.protocol.messages.cluster import Gateway, StartOffsets
from sharequeue.protocol.messages.leaders import (
    ChangeReadersRequest,
    ChangeReadersResponse,
    GroupPartitionsRequest,
    GroupUsageResponse,
    UnloadGroupRequest,
)
from sharequeue.repeats import EVERY_GATEWAY, Tries
from sharequeue_http.calling.caller import SHORTEST_ATTEMPT_S, Client
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable

ATTEMPT_S: Final = 2.0
NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
CHANGED_AT_ONCE: Final = 1000
"""The most partitions of one call that changes readers."""


class GatewayCalls:
    """`gateways`: returns the live ones."""

    def __init__(self, gateways: Callable[[], Awaitable[Sequence[Gateway]]], *, cluster_token: str) -> None:
        self._gateways = gateways
        self._cluster_token = cluster_token

    async def usage(self, group_id: str, request: GroupPartitionsRequest) -> list[GroupUsageResponse]:
        """Return how each gateway uses a group. Raises: as `_ask_all`."""
        return await self._ask_all(apis.GROUP_USAGE, request, {"group": group_id})

    async def unload(self, group_id: str, request: UnloadGroupRequest) -> None:
        """Have every gateway unload the state of a group that it has loaded so far. Raises: as `_ask_all`."""
        await self._ask_all(apis.UNLOAD_GROUP, request, {"group": group_id})

    async def change_readers(
        self,
        group_id: str,
        step: Literal["reserve", "raise", "remove"],
        state_epoch: int,
        offsets: Mapping[str, Mapping[int, int]],
    ) -> StartOffsets:
        """Have any gateway change the group's rows among the log's readers. Without a gateway nothing changes.

        Returns: the start offsets; after `reserve`, within the bounds of the log. Raises: CoordinatorNotAvailable.
        """
        changed: StartOffsets = {}
        entries = ((topic_id, *entry) for topic_id, partitions in offsets.items() for entry in partitions.items())
        while some := list(islice(entries, CHANGED_AT_ONCE)):
            piece: StartOffsets = {}
            for topic_id, partition, offset in some:
                piece.setdefault(topic_id, {})[partition] = offset
            request = ChangeReadersRequest(step=step, state_epoch=state_epoch, offsets=piece)
            answered: ChangeReadersResponse | None = await self.ask_one(
                apis.CHANGE_READERS, request, "change the readers of the log", {"group": group_id}
            )
            for topic_id, partitions in (piece if answered is None else answered.offsets).items():
                changed.setdefault(topic_id, {}).update(partitions)
        return changed

    async def ask_one(
        self, api: Api, request: Any, what: str, path: Mapping[str, str] = NO_NAMES, each_s: float | None = None
    ) -> Any:
        """Ask one gateway after another until one has answered. Returns: its answer; None without a gateway.

        Raises: CoordinatorNotAvailable: none can do it. `what`: the text names it so. `each_s`: the time of each.
        """
        deadline = time.monotonic() + EVERY_GATEWAY.patience_s
        failure: ApiError | None = None
        for gateway in await self._gateways():
            try:
                return await self._ask(gateway, api, request, path, each_s or _left(deadline))
            except ApiError as error:
                failure = error
        if failure is None:
            return None
        raise CoordinatorNotAvailable(f"no gateway can {what}: {failure}", definite=False)

    async def _ask_all(self, api: Api, request: Any, path: Mapping[str, str]) -> list[Any]:
        """Ask every live gateway until each has answered. One that does not must leave the generation in time.

        Raises: CoordinatorNotAvailable: a gateway has not answered by the deadline.
        """
        deadline = time.monotonic() + EVERY_GATEWAY.patience_s
        answers: dict[Gateway, Any] = {}
        tries = Tries(EVERY_GATEWAY)
        while True:
            gateways = list(await self._gateways())
            missing = [gateway for gateway in gateways if gateway not in answers]
            asked = await asyncio.gather(
                *(self._ask(gateway, api, request, path, _left(deadline)) for gateway in missing),
                return_exceptions=True,
            )
            failure: BaseException | None = None
            for gateway, answer in zip(missing, asked, strict=True):
                if isinstance(answer, ApiError):
                    failure = answer
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    answers[gateway] = answer
            if failure is None:
                return [answers[gateway] for gateway in gateways]
            if not await tries.pause():
                raise CoordinatorNotAvailable(f"a gateway does not answer: {failure}", definite=False)

    async def _ask(self, gateway: Gateway, api: Api, request: Any, path: Mapping[str, str], seconds: float) -> Any:
        client = Client(gateway.url, cluster_token=self._cluster_token)
        try:
            return await client.call(api, request, path=path, deadline_s=seconds, retry=False)
        finally:
            await client.close()


def _left(deadline: float) -> float:
    """The seconds of an attempt that begins now."""
    return min(max(deadline - time.monotonic(), SHORTEST_ATTEMPT_S), ATTEMPT_S)
