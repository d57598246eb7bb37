"""Keys and rights of a stack, for tests: made at the group coordinator, and known to every gateway before their use."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, wait_until

ADMIN = "User:admin"
ELSEWHERE = (421, 503)
"""Answers of a group coordinator that does not own keys and rights, or not yet."""
SETTINGS = {"SHAREQUEUE_GATEWAY_AUTHENTICATION": "required", "SHAREQUEUE_GATEWAY_SUPER_USERS": ADMIN}


class Access:
    """Makes keys and rights. A method returns when every gateway has heard of the change."""

    def __init__(self, stack: Stack, data_dir: Path) -> None:
        token = (data_dir / "cluster.token").read_text()
        self._http = httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=40, verify=False)
        self._coordinators = [url for name, url in stack.addresses.items() if name.startswith("group coordinator")]
        self._stack = stack

    def close(self) -> None:
        self._http.close()

    def _call(self, method: str, path: str, status: int = 200, **options: Any) -> Any:
        """One call of the group coordinator that owns keys and rights."""

        def answers() -> Iterator[httpx.Response]:
            for url in self._coordinators:
                with contextlib.suppress(httpx.TransportError):
                    yield self._http.request(method, url + path, **options)

        def answer() -> httpx.Response | None:
            return next((each for each in answers() if each.status_code not in ELSEWHERE), None)

        return good(wait_until(answer), status)

    def key(self, principal: str, **fields: Any) -> str:
        """The text of a new key."""
        made = self._call("POST", "/v1/keys", 201, json={"principal": principal, **fields})
        self.until_known()
        return str(made["key"])

    def revoke(self, key: str) -> None:
        self._call("DELETE", f"/v1/keys/{key.split('_')[1]}")

    def allow(self, principal: str, operation: str, kind: str, name: str, pattern: str = "LITERAL") -> dict[str, str]:
        right = {
            "principal": principal,
            "operation": operation,
            "resource_type": kind,
            "resource_name": name,
            "pattern_type": pattern,
        }
        self._call("POST", "/v1/acls", 201, json={"acls": [right]})
        self.until_known()
        return right

    def withdraw(self, right: dict[str, str]) -> None:
        self._call("DELETE", "/v1/acls", params=right)
        self.until_known()

    def uses(self) -> dict[str, Any]:
        """The last use of each key, as the coordinator lists it."""
        keys = self._call("GET", "/v1/keys", params={"page_size": 1000})["keys"]
        return {key["key_id"]: key.get("last_used_at_ms") for key in keys}

    def until_known(self) -> None:
        revision = self._call("GET", "/v1/metadata/access")["revision"]

        def known(url: str) -> bool:
            told = httpx.get(f"{url}/readyz", verify=False).json()["dependencies"].get("authentication")
            return told is None or f"revision {revision}," in told  # with `off` there is nothing to know

        wait_until(lambda: all(map(known, self._stack.urls)))


@contextlib.contextmanager
def caller(stack: Stack, key: str | None, url: str | None = None) -> Iterator[Gateway]:
    """The gateway, called with a key, or without one."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url or stack.url, headers=headers, timeout=40, verify=False) as http:
        yield Gateway(http)
