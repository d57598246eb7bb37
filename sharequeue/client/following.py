"""Calls go to the gateway that leads what a client fetches or produces, once answers name it (`leaders`).

Any gateway serves any call; the leader serves it without a hop. It is the first of the client's servers then. While it
is out of reach, calls go to the gateway before it.

The answer of a gateway decides which other origins get the token: the gateway has it already. Further headers are for
the proxy before `base_url` and go nowhere else. No call goes from https to a leader of http, where all could read it.
"""

import contextlib
import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from sharequeue.protocol.messages.records import PartitionLeader
from sharequeue_http.calling.caller import MOST_CONNECTIONS, Client
from sharequeue_http.calling.connections import Connections, service_url
from sharequeue_http.calling.login import Login
from sharequeue_http.forms.errors import ApiError, AuthenticationFailed, LoginWanted

AVOIDED_S: Final = 30.0
"""How long a leader is avoided after it was out of reach: its URL may be for the gateways' network only."""


class FollowingClient(Client):
    """Calls the gateway that leads most of what is fetched or produced, with a login of its own."""

    def __init__(
        self, base_url: str | Sequence[str], *, login: Login, ca: str | None = None, deadline_s: float = 10.0
    ) -> None:
        super().__init__(base_url, login=login, ca=ca, deadline_s=deadline_s)
        self._own_login: Final = login
        self._led_at: dict[tuple[str, int], str] = {}
        """URLs of leaders, by (topic, partition), from the answers."""
        self._avoided_until: dict[str, float] = {}

    def learn(self, places: Iterable[tuple[str, int]], leaders: Iterable[PartitionLeader]) -> None:
        """Move to the gateway that leads most partitions, if it leads more than the present one.

        Args:
            places: the partitions that an answer had records of. leaders: the other gateways that it names.
        """
        named = {(leader.topic, leader.partition): leader.url.rstrip("/") for leader in leaders}
        for place in places:
            self._led_at[place] = named.get(place, self.base_url)
        counts = Counter(self._led_at.values())
        if counts:
            ((url, count),) = counts.most_common(1)
            if count > counts[self.base_url] and time.monotonic() >= self._avoided_until.get(url, 0.0):
                self._follow(url)

    def forget(self) -> None:
        """Forget the leaders: the consumer fetches other partitions from now on."""
        self._led_at.clear()

    def _follow(self, url: str) -> None:
        """Call another gateway from now on. Calls under way at the last leader lose their answers and are repeated."""
        self._leave()
        if url == self.base_url:
            return
        with contextlib.suppress(ValueError):
            if service_url(url).scheme == "https" or service_url(self.base_url).scheme == "http":
                self._servers.appendleft((url, Connections(url, MOST_CONNECTIONS, self.ca)))
                self.base_url, self._connections = self._servers[0]
                self.login = Login(self.login.token)
                return
        self._avoided_until[url] = math.inf  # no call may go there

    def _leave(self) -> None:
        """Call no leader, but the server before it."""
        if self.login is not self._own_login:
            self._servers.popleft()[1].close()
            self.base_url, self._connections = self._servers[0]
            self.login = self._own_login

    def _turn_from(self, connections: Connections) -> None:
        if self.login is self._own_login:
            super()._turn_from(connections)
        elif connections is self._connections:
            self._avoided_until[self.base_url] = time.monotonic() + AVOIDED_S
            self.forget()
            self._leave()

    def _turns_after(self, connections: Connections, error: ApiError) -> bool:
        """A leader that has another login, or cannot serve the call now, is avoided."""
        if not (error.error.retriable or isinstance(error, (AuthenticationFailed, LoginWanted))):
            return False
        if self.login is not self._own_login:
            self._turn_from(connections)
        return all(connections is not there for _, there in self._servers)  # a leader, which this call or another left
