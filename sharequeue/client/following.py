"""Calls go to the gateway that leads what a client fetches or produces, once answers name it (`leaders`).

Any gateway serves any call; the leader serves it without a hop. While the leader is out of reach, calls go to the first
gateway.

The answer of a gateway decides which other origins get the token: the gateway has it already. Further headers are for
the proxy before `base_url` and go nowhere else. No call goes from https to a leader of http, where all could read it.
"""

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from sharequeue.protocol.messages.records import PartitionLeader
from sharequeue_http.calling.caller import Client
from sharequeue_http.calling.connections import service_url
from sharequeue_http.calling.login import Login
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError, AuthenticationFailed, LoginWanted

AVOIDED_S: Final = 30.0
"""How long a leader is avoided after it was out of reach: its URL may be for the gateways' network only."""


class FollowingClient(Client):
    """Calls the gateway that leads most of what is fetched or produced; if it does not answer, that at `base_url`."""

    def __init__(
        self, base_url: str | Sequence[str], *, login: Login, ca: str | None = None, deadline_s: float = 10.0
    ) -> None:
        super().__init__(base_url, login=login, ca=ca, deadline_s=deadline_s)
        self._followed: Client | None = None
        self._led_at: dict[tuple[str, int], str] = {}
        """URLs of leaders, by (topic, partition), from the answers."""
        self._avoided_until: dict[str, float] = {}

    @property
    def url(self) -> str:
        return self.base_url if self._followed is None else self._followed.base_url

    async def close(self) -> None:
        await self._follow(self.base_url)
        await super().close()

    async def learn(self, places: Iterable[tuple[str, int]], leaders: Iterable[PartitionLeader]) -> None:
        """Move to the gateway that leads most partitions, if it leads more than the present one.

        Args:
            places: the partitions that an answer had records of. leaders: the other gateways that it names.
        """
        named = {(leader.topic, leader.partition): leader.url.rstrip("/") for leader in leaders}
        for place in places:
            self._led_at[place] = named.get(place, self.url)
        counts = Counter(self._led_at.values())
        if counts:
            ((url, count),) = counts.most_common(1)
            if count > counts[self.url] and time.monotonic() >= self._avoided_until.get(url, 0.0):
                await self._follow(url)

    def forget(self) -> None:
        """Forget the leaders: the consumer fetches other partitions from now on."""
        self._led_at.clear()

    async def _follow(self, url: str) -> None:
        """Call another gateway from now on. Calls under way at the one before lose their answers and are repeated."""
        left, self._followed = self._followed, None if url == self.base_url else self._leader(url)
        if left is not None:
            await left.close()

    def _leader(self, url: str) -> Client | None:
        """A client of a leader; None, if no call may go there."""
        with contextlib.suppress(ValueError):
            if service_url(url).scheme == "https" or service_url(self.base_url).scheme == "http":
                return Client(url, login=Login(self.login.token), ca=self.ca)
        self._avoided_until[url] = math.inf
        return None

    async def relay(
        self,
        api: Api,
        request: Any = None,
        *,
        path: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        deadline_s: float | None = None,
        retry: bool = True,
        in_doubt: Callable[[], None] | None = None,
    ) -> tuple[bytes, Mapping[str, str]]:
        followed = self._followed
        if followed is not None:
            deadline_s = self._deadline_s if deadline_s is None else deadline_s
            asked_at = time.monotonic()
            try:
                return await followed.relay(
                    api, request, path=path, headers=headers, deadline_s=deadline_s, retry=False
                )
            except ApiError as error:
                if not (error.error.retriable or isinstance(error, (AuthenticationFailed, LoginWanted))):
                    raise
                if self._followed is followed:
                    self._avoided_until[followed.base_url] = time.monotonic() + AVOIDED_S
                    self.forget()
                    await self._follow(self.base_url)
                if not retry or not (error.definite or api.idempotent):
                    raise
                if in_doubt is not None and not error.definite:
                    in_doubt()
            deadline_s = max(deadline_s - (time.monotonic() - asked_at), 0.0)
        return await super().relay(
            api, request, path=path, headers=headers, deadline_s=deadline_s, retry=retry, in_doubt=in_doubt
        )
