"""The book of keys and rights: filled from the group coordinator when the change feed shows another revision."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.access.keys import parse_key
from sharequeue.protocol.access.rights import ANONYMOUS, Rights
from sharequeue.protocol.messages.access import AccessResponse, KeyUsesRequest, StoredKey
from sharequeue.protocol.shards import CLUSTER
from sharequeue.repeats import Every
from sharequeue_http.application.endpoint import Caller
from sharequeue_http.forms.errors import ApiError

NOTE_S: Final = 600.0
NOTE_DEADLINE_S: Final = 2.0
"""A gateway that stops waits no longer."""
MOST_RECENT: Final = 1000
UNKNOWN: Final = -1
"""The revision of a book that was never filled."""


class KeyHolder(Caller, frozen=True):
    """A caller. `key_id`: empty without a key, which holds until `ends_ms`. `limited`: whether rights say what it may
    do. `revision`: of the book that knew the key."""

    key_id: str = ""
    limited: bool = True
    revision: int = UNKNOWN
    ends_ms: float = math.inf


class AccessBook:
    """All keys and rights. `rights`: replaced as a whole. `listeners`: called after each change.

    `heard_s`: when the feed last said that the book is up to date, of `time.monotonic()`.
    """

    def __init__(self, coordinator: CoordinatorClient, super_users: Iterable[str]) -> None:
        self._coordinator = coordinator
        self._super_users = frozenset(super_users)
        self._keys: Mapping[str, StoredKey] = {}
        self._ends_ms: Mapping[str, float] = {}
        """By principal: when the last of its keys ends."""
        self._uses: dict[str, int] = {}
        self._recent: dict[bytes, KeyHolder] = {}
        self.revision = UNKNOWN
        self.rights = Rights((), self._super_users)
        self.heard_s = float("-inf")
        self.listeners: list[Callable[[], None]] = []

    def holder_of(self, sent: bytes, now_ms: Callable[[], int]) -> KeyHolder | None:
        """The holder of the key in a header Authorization; None: it is malformed, wrong, or holds no more. The headers
        of keys that held lately are known until the next change. Of a key's uses between two reports the first is
        noted."""
        found = self._recent.get(sent) or self._look_up(sent)
        if found is None or (found.ends_ms != math.inf and now_ms() >= found.ends_ms):
            return None
        if found.key_id not in self._uses:
            self._uses[found.key_id] = now_ms()
        return found

    def _look_up(self, sent: bytes) -> KeyHolder | None:
        scheme, _, text = sent.partition(b" ")
        key = parse_key(text.strip().decode("latin-1")) if scheme.lower() == b"bearer" else None
        known = None if key is None else self._keys.get(key.key_id)
        if key is None or known is None or not key.is_of(bytes.fromhex(known.digest)):
            return None
        if len(self._recent) >= MOST_RECENT:
            self._recent.clear()
        found = KeyHolder(known.principal, key.key_id, revision=self.revision, ends_ms=_end_ms(known))
        self._recent[sent] = found
        return found

    def key_holds(self, caller: KeyHolder, now_ms: int) -> bool:
        """Return whether the key of a caller holds still. One without a key needs none."""
        key = self._keys.get(caller.key_id)
        return not caller.key_id or (key is not None and now_ms < _end_ms(key))

    def principal_holds(self, principal: str, now_ms: int) -> bool:
        """Return whether a principal has a key that holds, or needs none."""
        return principal == ANONYMOUS or now_ms < self._ends_ms.get(principal, 0)

    async def hear(self, revision: int) -> None:
        """The feed has answered with this revision: read keys and rights if it is another one. Raises: ApiError."""
        if revision != self.revision:
            await self.fill()
        self.heard_s = time.monotonic()

    async def fill(self) -> None:
        """Read all keys and rights. Raises: ApiError."""
        self.learn(await self._coordinator.call(apis.DESCRIBE_ACCESS, key=CLUSTER))

    def learn(self, answer: AccessResponse) -> None:
        """Take these keys and rights in place of those before."""
        rights = Rights(answer.acls, self._super_users)
        self._recent.clear()
        self._keys = {key.key_id: key for key in answer.keys}
        self._ends_ms = {key.principal: _end_ms(key) for key in sorted(answer.keys, key=_end_ms)}
        self.rights = rights
        self.revision = answer.revision
        self.heard_s = time.monotonic()
        for listener in self.listeners:
            listener()

    async def run(self) -> None:
        """Report the last uses of keys every ten minutes. Never returns."""
        async for _ in Every(NOTE_S):
            await self.note_uses()

    async def note_uses(self) -> None:
        """Report the last uses of keys since the last report. What was not taken is reported with the next ones."""
        uses, self._uses = self._uses, {}
        if not uses:
            return
        try:
            request = KeyUsesRequest(used_at_ms=uses)
            await self._coordinator.call(apis.NOTE_KEY_USES, request, key=CLUSTER, deadline_s=NOTE_DEADLINE_S)
        except ApiError:
            self._uses = {**uses, **self._uses}


def _end_ms(key: StoredKey) -> float:
    return math.inf if key.expires_at_ms is None else key.expires_at_ms
