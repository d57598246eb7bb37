"""One member's fetches: session epochs, fetch ids, lost answers. Consumers that follow leaders need no share session.

A fetch whose answer was lost stays *unanswered*. The next fetch repeats its id, and the service answers with the
records that the first one acquired. So no delivery counts twice. Source: KIP-932, the consumer's share session handler.
"""

import dataclasses
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from sharequeue.client.consuming.acknowledging import doubt
from sharequeue.client.consuming.deliveries import OutcomeRun
from sharequeue.client.consuming.values import Decode
from sharequeue.client.following import FollowingClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import (
    BY_CODE,
    InvalidShareSessionEpoch,
    ShareSessionNotFound,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sharequeue.protocol.messages.records import FetchedBatch, FetchRequest, FetchResponse, TopicPartitions
from sharequeue.protocol.types import MAX_INT32, MAX_WAIT_MS
from sharequeue_http.calling.caller import Client
from sharequeue_http.forms.errors import ApiError

log = logging.getLogger(__name__)

OPEN: Final = 0
CLOSE: Final = -1
METADATA_REFRESH_S: Final = 30.0
"""How often a fetch names its topics again. That brings new partitions into the session."""
MISSING_TOPIC_REFRESH_S: Final = 1.0
ANSWER_SLACK_S: Final = 5.0
"""How long an answer may take beyond the wait that the fetch asks for."""

SESSION_LOST: Final = (ShareSessionNotFound.error, InvalidShareSessionEpoch.error)
MISSING_TOPIC: Final = frozenset({UnknownTopicOrPartition.error, UnknownTopicId.error})
REPEATABLE: Final = dataclasses.replace(apis.FETCH_RECORDS, idempotent=True)
"""A fetch with a fetch id, or one that ends a session: `Client` repeats it when its answer was lost."""


class Fetched(NamedTuple):
    """A fetch's answer and the acknowledgements that it carried. `repeated`: an earlier answer was lost."""

    response: FetchResponse
    acknowledgements: list[OutcomeRun]
    repeated: bool


@dataclasses.dataclass(slots=True)
class _Unanswered:
    """A fetch that has no answer yet: not sent, under way, or its answer was lost."""

    fetch_id: str
    acknowledgements: list[OutcomeRun] = dataclasses.field(default_factory=list)
    attempts: int = 0
    under_way: bool = False


class Fetching:
    """The fetches of one member of a group, one at a time.

    `asked`: the members of each request that stay: who fetches and which topics, within which limits.

    A `FollowingClient` learns from the answers which gateway leads which partitions. Its fetches need no session: a
    session lives at one gateway.
    """

    def __init__(self, client: Client, group: str, asked: FetchRequest, decode: Decode | None = None) -> None:
        self._client = client
        self._following = client if isinstance(client, FollowingClient) else None
        self._path = {"group": group}
        self.holder: Final = (group, asked.member_id or "", decode)
        """Who holds what is fetched, and how its values are decoded."""
        self._asked = asked
        self.max_records: int | None = None
        """Of the next fetches; None: as `asked` says."""
        self._epoch = OPEN
        self._refresh_at = 0.0
        self._fetch_prefix = uuid.uuid4().hex[:16]
        self._fetches = 0
        self._unanswered: _Unanswered | None = None
        self._logged: set[tuple[str, str]] = set()
        """Faults that are logged already, as (where, code)."""
        self.opened = False
        """Whether the service may hold a session of this member."""

    @property
    def topics(self) -> list[str]:
        return list(self._asked.topics or ())

    def assign(self, partitions: Mapping[str, list[int]]) -> None:
        """Fetch from these partitions from now on, by topic, in a new session. Held records stay held."""
        assigned = [TopicPartitions(topic=topic, partitions=some) for topic, some in partitions.items()]
        self._asked = replace(self._asked, topics=None, topic_partitions=assigned)
        self._epoch = OPEN
        if self._following is not None:
            self._following.forget()

    @property
    def opening(self) -> bool:
        """Return whether the next fetch opens a session; such a fetch cannot carry acknowledgements."""
        return self._epoch == OPEN and self._following is None

    def reopen(self) -> None:
        """The session is lost, so the next fetch opens another. An unanswered fetch keeps its id."""
        self._epoch = OPEN

    @property
    def unanswered_acknowledgements(self) -> list[OutcomeRun]:
        return [] if self._unanswered is None else self._unanswered.acknowledgements

    def take_unanswered_acknowledgements(self) -> list[OutcomeRun]:
        """The acknowledgements that an unanswered fetch carried. It is safe to send them again."""
        taken = self.unanswered_acknowledgements
        if self._unanswered is not None:
            if self._unanswered.under_way:  # its task is cancelled, and has not noticed yet
                doubt(taken)
            self._unanswered.acknowledgements = []
        return taken

    def name_topics_soon(self, seconds: float) -> None:
        """Name the topics again within this many seconds."""
        self._refresh_at = min(self._refresh_at, time.monotonic() + seconds)

    def carry(self, acknowledgements: Sequence[OutcomeRun]) -> None:
        self._next().acknowledgements += acknowledgements

    def _next(self) -> _Unanswered:
        if self._unanswered is None:
            self._fetches += 1
            self._unanswered = _Unanswered(f"{self._fetch_prefix}-{self._fetches}")
        return self._unanswered

    async def fetch(self, max_wait_ms: int) -> Fetched:
        """Fetch once, with the acknowledgements it is to carry.

        Raises: ApiError. After any error, and after a cancellation, the next call repeats the fetch with the same
            acknowledgements.
        """
        unanswered = self._next()
        unanswered.attempts += 1
        unanswered.under_way = True
        max_wait_ms = min(max_wait_ms, MAX_WAIT_MS)
        named = self._epoch == OPEN or time.monotonic() >= self._refresh_at or self._following is not None
        asked = self._asked if named else replace(self._asked, topics=None, topic_partitions=None)
        request = replace(
            asked,
            max_records=self.max_records or asked.max_records,
            max_wait_ms=max_wait_ms,
            share_session_epoch=self._epoch if self._following is None else None,
            acknowledgements=[run.message() for run in unanswered.acknowledgements],
            fetch_id=unanswered.fetch_id,
        )
        epoch = self._epoch
        opened, self.opened = self.opened, True
        lost = True
        try:
            response: FetchResponse = await self._client.call(
                apis.FETCH_RECORDS,
                request,
                path=self._path,
                deadline_s=max_wait_ms / 1000 + ANSWER_SLACK_S,
                retry=False,
            )
            lost = False
        except ApiError as error:
            lost = not error.definite
            if not lost:
                self.opened = opened
            raise
        finally:
            unanswered.under_way = False
            if lost:
                doubt(unanswered.acknowledgements)
        self._unanswered = None
        if epoch == self._epoch:  # else the subscription changed during the fetch
            self._epoch = 1 if epoch in (OPEN, MAX_INT32) else epoch + 1
        if named:
            self._refresh_at = time.monotonic() + METADATA_REFRESH_S
            if not response.errors:
                self._logged.clear()
        if self._following is not None:
            places = [(batch.topic, batch.partition) for batch in response.batches]
            self._following.learn(places, response.leaders)
        return Fetched(response, unanswered.acknowledgements, unanswered.attempts > 1)

    async def lost(self, deadline_s: float) -> Sequence[FetchedBatch]:
        """The ranges that an unanswered fetch acquired, without their records. This call acquires nothing.

        The service answers when that fetch has ended there, so nothing is acquired after this call, as it might be
        after the end of the session. It names no session: the epoch may be lost too.

        Raises: ApiError: the service cannot be reached, or refused.
        """
        unanswered = self._unanswered
        if unanswered is None or not unanswered.attempts:
            return ()
        request = replace(self._asked, max_records=0, max_wait_ms=0, with_records=False, fetch_id=unanswered.fetch_id)
        try:
            response: FetchResponse = await self._client.call(
                REPEATABLE, request, path=self._path, deadline_s=deadline_s
            )
        except ApiError as error:
            if error.error in MISSING_TOPIC:
                return ()
            raise
        self._unanswered = None
        return response.batches

    def faults(self, response: FetchResponse) -> list[ApiError]:
        """The errors of partitions; each is logged once. Their topics are named again soon."""
        if not response.errors:
            return []
        self.name_topics_soon(MISSING_TOPIC_REFRESH_S)
        faults = []
        for error in response.errors:
            where = error.topic if error.partition < 0 else f"{error.topic}-{error.partition}"
            row = BY_CODE.get(error.code, BY_CODE["UNKNOWN_SERVER_ERROR"])
            faults.append(ApiError(f"{where}: {error.detail}", error=row))
            if (where, error.code) not in self._logged:
                self._logged.add((where, error.code))
                log.warning("cannot fetch %s: %s", where, error.detail)
        return faults

    async def close(self, deadline_s: float) -> None:
        """End the session, if there is one. The service then releases what a lost answer acquired.

        Raises: ApiError: the service cannot be reached, or refused.
        """
        if self._following is not None:
            return
        request = FetchRequest(member_id=self._asked.member_id, share_session_epoch=CLOSE, max_wait_ms=0)
        try:
            await self._client.call(REPEATABLE, request, path=self._path, deadline_s=deadline_s)
        except ApiError as error:
            if error.error not in SESSION_LOST:
                raise
