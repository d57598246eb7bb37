"""Calling coordinators that run as several instances: each call goes to the owner of its key's shard.

Any instance answers who owns what. That map is kept, and asked for again when an owner refuses, does not answer, or
takes long.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Literal, TypeVar, Unpack

from sharequeue.protocol import apis
from sharequeue.protocol.errors import KAFKA_CODES, CoordinatorLoadInProgress, NotCoordinator
from sharequeue.protocol.messages.cluster import ShardOwner, ShardsResponse
from sharequeue.protocol.shards import shard_of
from sharequeue_http.calling.caller import SHORTEST_ATTEMPT_S, CallOptions, Client, Repeats, decoded
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable, RequestTimedOut

T = TypeVar("T")

PATIENCE_S: Final = 0.75
"""An instance that takes longer to answer may be paused: the others are asked repeatedly who the owner is."""
MAP_DEADLINE_S: Final = 1.0
MOVED: Final = frozenset(
    KAFKA_CODES[error.error] for error in (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)
)
"""Answers of a coordinator that may not be the owner any more."""


class CoordinatorClient:
    """Calls the group coordinators, or the share coordinators, whichever instance owns what a call is about."""

    def __init__(
        self,
        urls: str,
        kind: Literal["group", "share"],
        *,
        cluster_token: str | None = None,
        deadline_s: float = 10.0,
    ) -> None:
        """`urls`: of one instance or more, separated by commas; they name all others."""
        self.kind = kind
        self._urls = [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
        self._cluster_token = cluster_token
        self._deadline_s = deadline_s
        self._clients: dict[str, Client] = {}
        self._owners: dict[int, ShardOwner] = {}
        self._only_url: str | None = None
        """The instance that owns every shard, if one does."""
        self._others = len(set(self._urls)) > 1
        """Whether more than one instance is known."""
        self._count = 0
        self._learning: asyncio.Task[None] | None = None
        self._turns = itertools.count()

    async def close(self) -> None:
        if self._learning is not None:
            self._learning.cancel()
        for client in self._clients.values():
            await client.close()

    # Who owns what

    def owner(self, key: str) -> ShardOwner | None:
        """The owner of a key; None while it is not known."""
        return self._owners.get(shard_of(key, self._count)) if self._count else None

    async def learn(self) -> None:
        """Ask who owns what. Raises: ApiError: nobody answered."""
        await asyncio.shield(self._start_learning())

    def _start_learning(self) -> "asyncio.Task[None]":
        if self._learning is None or self._learning.done():
            self._learning = asyncio.create_task(self._learn())
            self._learning.add_done_callback(
                lambda task: task.cancelled() or task.exception()
            )  # it is logged otherwise
        return self._learning

    async def _learn(self) -> None:
        """Ask all at once: one may be paused, and the first answer is as good as any; epochs tell what is newer."""
        calls = [
            self._client(url).call(apis.SHARDS, deadline_s=MAP_DEADLINE_S, retry=False) for url in self._known_urls()
        ]
        asking = list(map(asyncio.create_task, calls))
        failure: ApiError = CoordinatorNotAvailable(f"no {self.kind} coordinator is configured")
        try:
            for answer in asyncio.as_completed(asking):
                try:
                    self._merge(await answer)
                    return
                except ApiError as error:
                    failure = error
            raise failure
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    def _merge(self, answer: ShardsResponse) -> None:
        self._count = answer.count
        for owner in answer.shards:
            known = self._owners.get(owner.shard)
            if known is None or known.owner_epoch <= owner.owner_epoch:
                self._owners[owner.shard] = owner
        urls = {owner.url for owner in self._owners.values()}
        self._others = len(urls.union(self._urls)) > 1
        whole = all(shard in self._owners for shard in range(self._count))
        self._only_url = urls.pop() if len(urls) == 1 and whole else None

    def _client(self, url: str) -> Client:
        """The client of an instance, made when it is first asked for."""
        client = self._clients.get(url)
        if client is None:
            client = self._clients[url] = Client(url, cluster_token=self._cluster_token)
        return client

    async def _url_for(self, key: str | None) -> str:
        """Return where to send a call. Raises: ApiError, definite: that is not known now."""
        if key is None:
            return self._any_url()
        owner = self.owner(key)
        if owner is None:
            await self.learn()
            owner = self.owner(key)
        if owner is None:
            raise CoordinatorLoadInProgress(f"no {self.kind} coordinator owns {key!r} now")
        return owner.url

    def _known_urls(self) -> set[str]:
        return {*self._urls, *(owner.url for owner in self._owners.values())}

    def _any_url(self) -> str:
        urls = sorted({owner.url for owner in self._owners.values()}) or self._urls
        return urls[next(self._turns) % len(urls)]

    # Calls

    async def call(
        self,
        api: Api,
        request: Any = None,
        *,
        key: str | None = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """As `Client.call`, at the owner of `key`: a group id, `group:topic_id:partition` or CLUSTER; None: at any."""
        body = await self.exchange(api, request, key=key, **options)
        return None if api.response is None else decoded(api, body, f"the {self.kind} coordinator")

    async def of_group(self, api: Api, group_id: str, request: Any = None, *, deadline_s: float | None = None) -> Any:
        """As `call`, about a group, which is all that the path names."""
        return await self.call(api, request, key=group_id, path={"group": group_id}, deadline_s=deadline_s)

    async def exchange(
        self,
        api: Api,
        request: Any = None,
        *,
        key: str | Callable[[], str] | None = None,
        path: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        deadline_s: float | None = None,
        retry: bool = True,
    ) -> bytes:
        """As `call`, but the answer's body stays bytes.

        `key`: may be a function, if only one instance is known: the first attempt goes to it, and needs no key.
        """
        deadline = time.monotonic() + (self._deadline_s if deadline_s is None else deadline_s)
        if request is not None and not isinstance(request, bytes) and not api.query_parameters:
            request = encode(request)
        repeats = None
        while True:
            try:
                name = None if callable(key) else key
                url = self._only_url or await self._url_for(name)
                left_s = max(deadline - time.monotonic(), SHORTEST_ATTEMPT_S)
                client = self._clients.get(url) or self._client(url)
                asking = client.relay(api, request, path=path, headers=headers, deadline_s=left_s, retry=False)
                body, _ = await (self._while_owned(name, url, asking) if self._others else asking)
                return body
            except ApiError as error:
                if callable(key):
                    key = key()
                repeats = repeats or Repeats(api, deadline)
                again = repeats.after(error) and retry
                if error.problem is None or KAFKA_CODES[error.error] in MOVED:
                    await self._learn_before(deadline if again else time.monotonic() + repeats.pause_s)
                if not (again and repeats.in_time()):
                    raise
                await repeats.pause()

    async def _learn_before(self, deadline: float) -> None:
        """Ask who owns what, but go on without an answer at the deadline."""
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                await self.learn()
        except (TimeoutError, ApiError):
            return

    async def _while_owned(self, key: str | None, url: str, asking: Coroutine[Any, Any, T]) -> T:
        """The answer of the instance at `url`, given up once another one owns the key: this one may be paused."""
        attempt = asyncio.create_task(asking)
        try:
            while True:
                done, _ = await asyncio.wait({attempt}, timeout=PATIENCE_S)
                if done:
                    return attempt.result()
                if key is not None:
                    await self._learn_before(time.monotonic() + PATIENCE_S)
                    owner = self.owner(key)
                    if owner is not None and owner.url != url and not attempt.done():
                        raise RequestTimedOut(f"{url} did not answer before {owner.url} took over")
        finally:
            if not attempt.done():
                attempt.cancel()
                await asyncio.gather(attempt, return_exceptions=True)
