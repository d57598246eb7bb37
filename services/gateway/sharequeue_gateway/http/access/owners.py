"""The transactions that belong to a caller: its own, and those whose transactional id it has a right to.

The record log decides nothing about rights: it gets an `Owner`, a principal and patterns. A caller without a key has no
principal there. So what it began goes on when it sends a key, and with `authentication=off` everything is everybody's.
"""

import hashlib
from functools import lru_cache
from typing import Final

from sharequeue.protocol.access.rights import ANONYMOUS, CLUSTER_NAME
from sharequeue.protocol.messages.access import Operation
from sharequeue_gateway.access.book import MOST_RECENT, AccessBook
from sharequeue_gateway.producing.producer import Prepared, key_of
from sharequeue_gateway.record_log.log import IdempotencyKey
from sharequeue_gateway.record_log.owner import ANYBODY, Owner, owner_of
from sharequeue_http.application.endpoint import Call

_ANONYMOUS: Final = owner_of("", (), ("",))


class Owners:
    """Answers from memory. `book`: None: nobody has a principal."""

    def __init__(self, book: AccessBook | None) -> None:
        self._book = book
        self._owner = lru_cache(MOST_RECENT)(self._decide)
        if book is not None:
            book.listeners.append(self._owner.cache_clear)

    def of(self, principal: str) -> Owner:
        """Whose transactions a caller may use. `principal`: as `Caller.principal`."""
        return self._owner(principal, "WRITE")

    def seen(self, principal: str) -> str:
        """Patterns of the transactions that a caller may describe."""
        return self._owner(principal, "DESCRIBE").patterns

    def listed(self, principal: str) -> str:
        """Patterns of those that its lists show. The id of one that began without a principal is shown to nobody who
        did not begin it, since it may be used by each caller that knows it."""
        return self._owner(principal, "DESCRIBE", of_nobody=False).patterns

    def key_of(self, call: Call, prepared: Prepared, body: bytes) -> IdempotencyKey | None:
        """The idempotency key of a request that produces; None: it has none. Raises: InvalidRequest."""
        name, retention = call.header("idempotency-key"), call.header("idempotency-retention-ms")
        fingerprint = b"" if name is None else hashlib.sha256(body).digest()
        return key_of(
            self.of(call.caller.principal).principal, prepared, call.exchange.path, name, retention, fingerprint
        )

    def _decide(self, principal: str, operation: Operation, *, of_nobody: bool = True) -> Owner:
        if self._book is None or not principal:
            return ANYBODY
        if principal == ANONYMOUS:
            return _ANONYMOUS
        rights = self._book.rights
        if operation == "DESCRIBE" and rights[principal, operation, "CLUSTER", CLUSTER_NAME]:
            return ANYBODY
        names, prefixes = rights.names(principal, operation, "TRANSACTIONAL_ID")
        return owner_of(principal, names, prefixes, of_nobody=of_nobody)
