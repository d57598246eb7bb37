"""The guard of the gateway's calls: whose key a request has, and what that principal may do.

    no key ─┬─ `required`, or a call of keys and rights ─▶ 401
            └─ `optional` ─▶ User:ANONYMOUS: served, counted, logged
    a key ─┬─ malformed, wrong, expired, revoked ─▶ 401, the same for all
           └─ holds ─▶ what is known is too old ─▶ 503, unless the call ends work that has begun
                    └─▶ each need of the call, by name ─▶ 403, or the name in `refused`

Nothing here waits for another service, but for a produce that may create its topic.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final
from urllib.parse import unquote

from sharequeue.clock import Clock
from sharequeue.protocol.access.columns import Access, Shown, names_of
from sharequeue.protocol.access.rights import ANONYMOUS, Question
from sharequeue.protocol.errors import ClusterAuthorizationFailed
from sharequeue.protocol.messages.leaders import PRINCIPAL
from sharequeue_gateway import metrics
from sharequeue_gateway.access.book import MOST_RECENT, UNKNOWN, AccessBook, KeyHolder
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.http.access.refused import Refused, refusal
from sharequeue_gateway.http.access.shown import filtered
from sharequeue_http.answer import Stream
from sharequeue_http.application.endpoint import Call
from sharequeue_http.exchange import Exchange
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import ApiError, AuthenticationFailed, CoordinatorNotAvailable, InvalidRequest
from sharequeue_http.forms.mistakes import MOST_AUDITED, SECRET, quoted
from sharequeue_http.log import Tally, fields

log = logging.getLogger(__name__)

NOTHING: Final[Mapping[str, ApiError]] = {}
_RESOURCES_LOGGED: Final = 20
ANONYMOUS_CALLS: Final = Tally(log, logging.INFO, "a caller without a key: authentication=required would refuse it")
REFUSED_CHANGES: Final = Tally(log, logging.INFO, "audit")
"""By principal, call and code: the first at once, then how many there were in a minute."""

_ANYBODY: Final = KeyHolder(ANONYMOUS, limited=False)


class AccessGuard:
    """Decides about the calls of a gateway whose `authentication` is `optional` or `required`.

    Args:
        stale_ms: how long the feed may be silent; -1: for ever.
    """

    def __init__(self, book: AccessBook, metadata: Metadata, clock: Clock, *, required: bool, stale_ms: int) -> None:
        self._book = book
        self._metadata = metadata
        self._clock = clock
        self._required = required
        self._stale_s = stale_ms / 1000 if stale_ms >= 0 else float("inf")
        self._none_refused = lru_cache(MOST_RECENT)(lambda *which: Refused({}, partial(self._refusal, *which)))
        """By principal, operation and type: no name of a request is refused; any other is decided when it is asked."""

    # Who calls

    def caller(self, api: Api, exchange: Exchange, headers: Mapping[bytes, bytes]) -> KeyHolder:
        if api.internal:  # another gateway, which has shown the cluster token, passes on a call of this principal
            principal = unquote(headers.get(PRINCIPAL.encode(), b"").decode("latin-1")) or ANONYMOUS
            limited = self._required or principal != ANONYMOUS
            return KeyHolder(principal, limited=limited, revision=self._book.revision)
        if exchange.query or "sq_" in exchange.path:
            _check_url(exchange)
        access: Access = api.access
        if access.open:
            return _ANYBODY
        given = headers.get(b"authorization")
        if given is None or (not self._required and given[:7].lower() != b"bearer "):  # of a proxy's login
            if self._required or access.keyed:
                raise unauthenticated()
            return _ANYBODY
        if self._book.revision == UNKNOWN:
            raise CoordinatorNotAvailable("this gateway does not know the keys yet; try again in a moment")
        holder = self._book.holder_of(given, self._clock.now_ms)
        if holder is None:
            raise unauthenticated()
        return holder

    # What it may do

    async def check(self, caller: KeyHolder, api: Api, path: Mapping[str, str], request: Any) -> Mapping[str, ApiError]:
        access: Access = api.access
        if not caller.limited:
            _count(api, path, request)
            return NOTHING
        book = self._book
        if caller.revision != book.revision or time.monotonic() - book.heard_s > self._stale_s:
            self.check_known(caller, access.goes_on, request)
        try:
            refused, rights, principal = NOTHING, book.rights, caller.principal
            for operation, resource_type, names, each in access.needs:
                errors = {}
                for name in (path[names],) if isinstance(names, str) else names(path, request):
                    if not rights[principal, operation, resource_type, name]:
                        errors[name] = refusal(principal, operation, resource_type, name)
                        if not each:
                            raise errors[name]
                if each:
                    none = self._none_refused(principal, operation, resource_type)
                    refused = Refused(errors, none.decide) if errors else none
            for name in () if access.creates is None else names_of(access.creates, path, request):
                if name not in self._metadata.sure:
                    await self._check_creation(principal, name)
            return refused
        except ApiError:
            raise
        except Exception as fault:
            log.error("deciding about a call failed", exc_info=fault, extra=fields(operation=api.operation_id))
            raise ClusterAuthorizationFailed(f"{caller.principal} is refused: deciding about the call failed") from None

    async def _check_creation(self, principal: str, topic: str) -> None:
        create: Question = (principal, "CREATE", "TOPIC", topic)
        if not self._book.rights[create] and await self._metadata.would_create(topic):
            raise refusal(*create)

    def check_known(self, caller: KeyHolder, goes_on: Callable[[Any], bool] | None = None, request: Any = None) -> None:
        """Raises: AuthenticationFailed: the key has ended since the call came; CoordinatorNotAvailable: the book is too
        old to begin anything."""
        if not self._book.key_holds(caller, self._clock.now_ms()):
            raise unauthenticated()
        if self.stale() and not (goes_on is not None and goes_on(request)):
            raise CoordinatorNotAvailable(
                "this gateway has not heard of changes of keys and rights for too long; acknowledgements are taken"
            )

    def _refusal(self, *question: Any) -> ApiError | None:
        """The error of a name that the rights of now refuse; None: they do not."""
        return None if self._book.rights[question] else refusal(*question)

    # What it sees

    def served(self, caller: KeyHolder, api: Api, call: Call, result: Any) -> Any:
        access: Access = api.access
        if access.audited is not None and access.audited(call.request):
            log.info("audit", extra=fields(**_audited(api, call)))
        return self._shown(caller, access.shows, result) if access.shows else result

    def failed(self, api: Api, call: Call, fault: BaseException) -> None:
        audited = api.access.audited
        if audited is None or not audited(call.request):
            return
        if isinstance(fault, ApiError) and fault.status == 403 and fault.definite:
            kind = call.caller.principal, api.operation_id, fault.code
            REFUSED_CHANGES.note(kind, **_audited(api, call), outcome="refused", cause=fault.detail)
        elif not getattr(fault, "definite", False):
            log.info("audit", extra=fields(**_audited(api, call), outcome="unknown"))

    def _shown(self, caller: KeyHolder, shows: Sequence[Shown], result: Any) -> Any:
        if not caller.limited or isinstance(result, Stream):
            return result
        rights, principal = self._book.rights, caller.principal
        partly = [shown for shown in shows if "" not in rights.names(principal, "DESCRIBE", shown.resource_type)[1]]

        def sees(shown: Shown, name: str) -> bool:
            return rights[principal, "DESCRIBE", shown.resource_type, name]

        return filtered(result, partly, sees) if partly else result

    # What /readyz says

    def stale(self) -> bool:
        """Return whether the feed has been silent for too long."""
        return time.monotonic() - self._book.heard_s > self._stale_s

    def fault(self) -> str | None:
        """Return why calls with a key are refused, or None."""
        if self._book.revision == UNKNOWN:
            return "are not known yet: no call with a key is served"
        return "are too old: only acknowledgements and ends of transactions are served" if self.stale() else None

    def told(self) -> str:
        mode = "required" if self._required else "optional: this mode protects nothing, it shows who has no key yet"
        if self._book.revision == UNKNOWN:
            return mode
        heard_s = time.monotonic() - self._book.heard_s
        return f"{mode}; keys and rights of revision {self._book.revision}, heard {heard_s:.0f} s ago"


def unauthenticated() -> AuthenticationFailed:
    return AuthenticationFailed("this call needs a key that holds: send the header `Authorization: Bearer` with it")


def _check_url(exchange: Exchange) -> None:
    """Raises: InvalidRequest: the URL has a key, which proxies and logs would keep."""
    query = exchange.query.decode("latin-1")
    if SECRET.search(exchange.path) or SECRET.search(unquote(query) if "%" in query else query):
        raise InvalidRequest(
            "the URL has a key, and others may have seen it: revoke it, and send keys in the header Authorization",
            status=400,
        )


def _audited(api: Api, call: Call) -> dict[str, Any]:
    """The fields of the log for a call that changes something, but records and what they are settled by."""
    client = call.exchange.client
    return {
        "operation": api.operation_id,
        "principal": call.caller.principal,
        "address": None if client is None else client[0],
        "path": {name: quoted(value) for name, value in call.path.items()},
        "request": None if call.request is None else quoted(encode(call.request).decode(), MOST_AUDITED),
    }


def _count(api: Api, path: Mapping[str, str], request: Any) -> None:
    """Count and log a call that has no key, unless it needs none."""
    if api.internal or api.access.open:
        return
    metrics.ANONYMOUS_CALLS[api.operation_id].value += 1
    needed = ((need.resource_type, names_of(need.names, path, request)) for need in api.access.needs)
    resources = sorted({f"{kind} {quoted(name)}" for kind, names in needed for name in names})[:_RESOURCES_LOGGED]
    ANONYMOUS_CALLS.note((api.operation_id, *resources), operation=api.operation_id, resources=resources)
