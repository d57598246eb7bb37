"""Makes calls of the table of calls, for `Admin`: docs/admin_client.py writes its methods from the table."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar

from sharequeue.client.errors import Closing, IllegalState
from sharequeue_http.calling.caller import Client
from sharequeue_http.calling.login import Login, Token
from sharequeue_http.forms.api import Api

T = TypeVar("T")


class OperatorCalls(Closing):
    """Makes calls with a client of its own, and follows the pages of lists. `Admin` says what the arguments mean."""

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        deadline_ms: float = 30_000,
        token: Token | None = None,
        headers: Mapping[str, str] | None = None,
        ca: str | None = None,
    ) -> None:
        self._client = Client(url, login=Login(token, headers), ca=ca, deadline_s=deadline_ms / 1000)
        self._closed = False

    async def close(self) -> None:
        """Close the connections."""
        self._check_loop()
        self._closed = True
        await self._client.close()

    async def _call(self, kind: type[T], api: Api, path: Mapping[str, object], /, **members: object) -> T:
        """Make a call. `members`: of its request. Returns: its answer, which is a `kind`."""
        self._check_loop()
        if self._closed:
            raise IllegalState("it is closed")
        answer: T = await self._client.call(api, api.request(**members) if api.request else None, path=path)
        return answer

    async def _pages(self, api: Api, path: Mapping[str, object], /, **members: object) -> AsyncIterator[Any]:
        token: str | None = None
        while True:
            page: Any = await self._call(object, api, path, page_token=token, **members)
            yield page
            token = page.next_page_token
            if not token:
                return

    async def _items(
        self, listed: str, api: Api, path: Mapping[str, object], /, **members: object
    ) -> AsyncIterator[Any]:
        """Yield each item of a list. `listed`: the member of its pages that has them."""
        async for page in self._pages(api, path, **members):
            for item in getattr(page, listed):
                yield item
