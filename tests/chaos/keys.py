"""Keys that are made, rotated and revoked while clients use them, and what must hold of each key at each gateway.

    make or rotate ──▶ every gateway knows the new key ──▶ clients use it ──▶ revoke the old one
                                                     └──▶ or first revoke the old one, which clients still use

A revoked key is refused for good by each gateway that has heard of the change. A key that holds is never refused.
"""

import asyncio
import itertools
import random
import re
import time
from dataclasses import dataclass
from typing import Final

import httpx

from sharequeue.stack.stack import ADMIN, Stack
from tests.chaos.clients import Gateways
from tests.chaos.history import History, Span, Trouble

PRINCIPALS: Final = ("User:a", "User:b")
REVISION: Final = re.compile(r"keys and rights of revision (\d+),")
PATIENCE_S: Final = 120.0
LONG_MS: Final = 600_000
"""The administrator's key must not end before another is there."""
ASKED: Final = 4
"""So many revoked keys the watcher tries at a gateway each time, the last one among them."""


@dataclass(eq=False)
class HeldKey:
    text: str
    principal: str
    ends: bool = False
    """Somebody has asked to end it: it may be refused."""
    gone_with: int | None = None
    """Gateways that know this revision, or a later one, must refuse it."""

    @property
    def key_id(self) -> str:
        return self.text.split("_")[1]


class PrincipalLogin:
    """The current key of one principal."""

    def __init__(self, keyring: "Keyring", principal: str) -> None:
        self._keyring = keyring
        self._principal = principal

    def key(self) -> str:
        return self._keyring.current[self._principal].text

    def refused(self, key: str, gateway: str) -> None:
        self._keyring.note_refusal(key, gateway)


class Keyring:
    """The keys of all principals of a run. `complaints`: what no gateway may do."""

    def __init__(self, stack: Stack, seed: int) -> None:
        assert stack.admin_key is not None
        self._stack = stack
        self._random = random.Random(f"keys {seed}")
        token = (stack._data_dir / "cluster.token").read_text()
        self._http = httpx.AsyncClient(timeout=5, verify=False)
        self._token = {"Authorization": f"Bearer {token}"}
        self._coordinators = [url for name, url in stack.addresses.items() if name.startswith("group coordinator")]
        self._turns = itertools.cycle(PRINCIPALS)
        self._gone: list[HeldKey] = []
        self._made: dict[str, HeldKey] = {}
        self.current = {ADMIN: self._held(stack.admin_key.read_text().strip(), ADMIN)}
        self._gateways = Gateways(stack.urls, f"keys {seed}", PrincipalLogin(self, ADMIN))
        self.client_refusals = self.watched_refusals = 0
        self.complaints: list[str] = []
        self.stopping = False

    @property
    def revoked(self) -> int:
        return len(self._gone)

    def login(self, client: str) -> PrincipalLogin:
        """Of the client of this name: the run itself is the administrator, others are principals in turn."""
        return PrincipalLogin(self, ADMIN if client.startswith("run") else next(self._turns))

    def _held(self, text: str, principal: str) -> HeldKey:
        held = self._made[text] = HeldKey(text, principal)
        return held

    def note_refusal(self, text: str, gateway: str) -> None:
        """A gateway has refused the key of a client."""
        self.client_refusals += 1
        key = self._made[text]
        if not key.ends:
            self.complaints.append(f"{gateway} refused a key of {key.principal} that held")

    async def prepare(self) -> None:
        """Make the first key and the rights of each principal. Both may do all that clients of a run do."""
        wanted = [("READ", "TOPIC"), ("WRITE", "TOPIC"), ("READ", "GROUP"), ("WRITE", "TRANSACTIONAL_ID")]
        rights = [
            {"principal": principal, "operation": operation, "resource_type": kind, "resource_name": "*"}
            for principal in PRINCIPALS
            for operation, kind in (*wanted, ("ALTER", "CLUSTER"))
        ]
        await self._gateways.until_answered("POST", "/v1/acls", {"acls": rights})
        for principal in PRINCIPALS:
            made = await self._gateways.until_answered("POST", "/v1/keys", {"principal": principal})
            self.current[principal] = self._held(made.document["key"], principal)
        await self._until_known(await self._revision())

    async def run(self, history: History) -> None:
        """Replace one key after another until `stopping`."""
        while not self.stopping:
            principal, started_s = self._random.choice(list(self.current)), time.monotonic()
            await self._replace(principal)
            span = Span(started_s, time.monotonic())
            history.troubles.append(Trouble(span, f"another key of {principal}"))
            await asyncio.sleep(self._random.uniform(0.1, 0.5))

    async def _replace(self, principal: str) -> None:
        draw, old = self._random, self.current[principal]
        if draw.random() < 0.5:
            made = await self._gateways.until_answered("POST", "/v1/keys", {"principal": principal})
        else:
            old.ends = principal != ADMIN
            body = {"overlap_ms": draw.choice((500, 2000)) if old.ends else LONG_MS}
            made = await self._gateways.ask("POST", f"/v1/keys/{old.key_id}/rotate", body, wait_s=20)
            if not made.ok:  # the old one may end by itself now
                made = await self._gateways.until_answered("POST", "/v1/keys", {"principal": principal})
        new = self._held(made.document["key"], principal)
        await self._until_known(await self._revision())
        switch_late = draw.random() < 0.5 and principal != ADMIN
        if not switch_late:
            self.current[principal] = new
        old.ends = True
        await self._gateways.until_answered("DELETE", f"/v1/keys/{old.key_id}")
        self.current[principal] = new
        old.gone_with = await self._revision()
        self._gone.append(old)

    async def watch(self) -> None:
        """Try revoked keys at each gateway that has heard of their end, again and again. Never returns."""
        while True:
            for index, url in enumerate(self._stack.urls):
                known = await self._known(url)
                gone = [key for key in self._gone if key.gone_with is not None and key.gone_with <= known]
                for key in {*gone[-1:], *self._random.sample(gone, min(len(gone), ASKED - 1))}:
                    status = await self._status(url, key)
                    self.watched_refusals += status == 401
                    if status not in (None, 401, 503):
                        text = f"gateway-{index} answered {status} to a revoked key of {key.principal}, at {known}"
                        self.complaints.append(f"{text}, which it must refuse from revision {key.gone_with} on")
            await asyncio.sleep(0.2)

    async def _status(self, url: str, key: HeldKey) -> int | None:
        headers = {"Authorization": f"Bearer {key.text}"}
        try:
            return (await self._http.get(f"{url}/v1/topics", headers=headers)).status_code
        except httpx.HTTPError:
            return None

    async def _known(self, url: str) -> int:
        """The revision that a gateway knows; -1: it does not answer, or knows none."""
        try:
            told = (await self._http.get(f"{url}/readyz")).json()["dependencies"]["authentication"]
        except (httpx.HTTPError, ValueError, KeyError):
            return -1
        found = REVISION.search(told)
        return int(found[1]) if found else -1

    async def _until_known(self, revision: int) -> None:
        """Wait until each gateway has known this revision."""
        async with asyncio.timeout(PATIENCE_S):
            for url in self._stack.urls:
                while await self._known(url) < revision:  # noqa: ASYNC110 - it happens in another process
                    await asyncio.sleep(0.1)

    async def _revision(self) -> int:
        """The present revision of keys and rights, of the group coordinator that owns them."""
        async with asyncio.timeout(PATIENCE_S):
            for url in itertools.cycle(self._coordinators):
                try:
                    answer = await self._http.get(f"{url}/v1/metadata/access", headers=self._token)
                except httpx.HTTPError:
                    answer = None
                if answer is not None and answer.status_code == 200:
                    revision: int = answer.json()["revision"]
                    return revision
                await asyncio.sleep(0.05)
        raise AssertionError("unreachable")

    async def close(self) -> None:
        await self._http.aclose()
        await self._gateways.close()
