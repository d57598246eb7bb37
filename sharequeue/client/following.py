"""Calls to the gateway that leads what a consumer fetches, once answers tell which one that is (`leaders`).

Any gateway serves any call; the leader serves it without a hop. While it is out of reach the first gateway is asked.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from sharequeue.http.caller import Client
from sharequeue.protocol.apis import Api
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.messages import FetchResponse

AVOIDED_S: Final = 30.0
"""How long a leader that could not be reached is not tried again: it may be of the gateways' network alone."""


class FollowingClient(Client):
    """Calls the gateway at `base_url`, or the one that leads most of what is fetched for as long as it answers."""

    def __init__(self, base_url: str) -> None:
        super().__init__(base_url)
        self._followed: Client | None = None
        self._led_at: dict[tuple[str, int], str] = {}
        """URLs by (topic, partition), as far as answers told."""
        self._avoided_until: dict[str, float] = {}

    @property
    def url(self) -> str:
        """Where calls go now."""
        return self.base_url if self._followed is None else self._followed.base_url

    async def close(self) -> None:
        await self._follow(self.base_url)
        await super().close()

    async def learn(self, answer: FetchResponse) -> None:
        """Go on at who leads most of what was ever fetched, as far as that is more than what is led where it is asked."""
        told = {(leader.topic, leader.partition): leader.url.rstrip("/") for leader in answer.leaders}
        for batch in answer.batches:
            place = (batch.topic, batch.partition)
            self._led_at[place] = told.get(place, self.url)
        counts = Counter(self._led_at.values())
        if counts:
            ((url, count),) = counts.most_common(1)
            if count > counts[self.url] and time.monotonic() >= self._avoided_until.get(url, 0.0):
                await self._follow(url)

    def forget(self) -> None:
        """Something else is fetched from now on."""
        self._led_at.clear()

    async def _follow(self, url: str) -> None:
        """What is under way at the gateway that is left is lost, and is repeated as after any lost answer."""
        left, self._followed = self._followed, None if url == self.base_url else Client(url)
        if left is not None:
            await left.close()

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
                if not error.error.retriable:
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
