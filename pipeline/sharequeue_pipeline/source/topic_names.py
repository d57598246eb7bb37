"""The topics of a read: those that `topics` names, or those that match `subscribePattern` at this moment.

A pattern never matches the names of dead-letter topics (`dlq.…`), nor the one that the group's setting names: a group
would read what it rejects. `topics` may name them.
"""

import math
import re
import time
from collections.abc import Iterable, Sequence
from typing import Final

from sharequeue.protocol.configs import DEAD_LETTER_PREFIX
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import SourceOptions

REFRESH_S: Final = 1.0
"""How old the list of topics may be."""


class TopicNames:
    """Asks for the topics again while a query runs, so it finds new ones."""

    def __init__(self, options: SourceOptions, except_for: Iterable[str] = ()) -> None:
        """`except_for`: topics that the pattern leaves out."""
        self._topics = options.topics
        self._pattern = options.pattern
        self._except = frozenset(except_for)
        self._at = -math.inf

    @property
    def of_pattern(self) -> bool:
        """Return whether topics may come and go."""
        return self._pattern is not None

    def names(self, gateway: GatewayClient, *, first_try: bool = False) -> Sequence[str]:
        """The names, at most `REFRESH_S` old. `first_try`: give up soon if there is no gateway."""
        if self._pattern is not None and time.monotonic() - self._at >= REFRESH_S:
            fits = re.compile(self._pattern).fullmatch
            self._topics = tuple(
                name
                for name in gateway.topic_names(first_try=first_try)
                if fits(name) and not name.startswith(DEAD_LETTER_PREFIX) and name not in self._except
            )
            self._at = time.monotonic()
        return self._topics
