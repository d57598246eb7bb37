"""A call within a process has the outcome of the same call over a connection; only the way is another one."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest

from sharequeue.service.in_process import InProcess
from sharequeue_http.application import pace
from sharequeue_http.application.app import App, serve
from sharequeue_http.application.endpoint import Call
from sharequeue_http.calling.caller import SERVED_HERE, Client
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable, InvalidRequest
from sharequeue_http.log import REQUEST, SERVICE, RequestContext
from tests.sharequeue_http.edge_server import edge_server

TOKEN = "a token of the services"
NOWHERE = "http://127.0.0.1:9"
"""Nobody listens there."""
HANG_S = 60


class Note(msgspec.Struct):
    text: str
    numbers: list[int] = []


class Query(msgspec.Struct):
    most: int = 3


NOTE = Api("note", "POST /v1/notes/{name}", "", request=Note, response=Note)
NOTES = Api("notes", "GET /v1/notes", "", request=Query, response=Note)
FORGET = Api("forget", "DELETE /v1/notes/{name}", "", status=204)
SMALL = Api("small", "POST /v1/small", "", request=Note, response=Note, tag="Tests")
MISSING = Api("missing", "POST /v1/missing", "", request=Note, response=Note)


class Notebook:
    """A service: its calls do what the text of a note says. `taken`: the notes that it was given."""

    def __init__(self) -> None:
        self.taken: list[Note] = []
        self.gone: list[bool] = []
        self.seen: list[tuple[str, str | None]] = []
        self.began, self.go = asyncio.Event(), asyncio.Event()
        self.ended = asyncio.Event()

    def app(self) -> App:
        app = App("notebook", "")
        serve(app, NOTE, self._note, cluster_token=TOKEN)
        serve(app, SMALL, self._note)
        serve(app, NOTES, self._notes, cluster_token=TOKEN)
        serve(app, FORGET, self._forget, cluster_token=TOKEN)
        return app

    async def _note(self, call: Call) -> Note:
        note: Note = call.request
        self.taken.append(note)
        context = REQUEST.get()
        self.seen.append((SERVICE.get(), context and context.request_id))
        if note.text == "refuse":
            raise InvalidRequest("no such note", pointers=[("/text", "must be another one")])
        if note.text == "away":
            raise CoordinatorNotAvailable("the store is away", definite=False)
        if note.text == "break":
            raise RuntimeError("a fault of the service")
        if note.text == "wait":
            self.began.set()
            await self.go.wait()
            self.gone.append(call.exchange.gone)
            self.ended.set()
        return note

    async def _notes(self, call: Call) -> Note:
        query: Query = call.request
        return Note("all", [query.most])

    async def _forget(self, call: Call) -> None:
        self.taken = [note for note in self.taken if note.text != call.path["name"]]


@pytest.fixture(autouse=True)
def nothing_stays_served() -> Iterator[None]:
    yield
    SERVED_HERE.clear()


def within(test: Callable[[Client, Notebook], Awaitable[Any]], **options: Any) -> Any:
    """Run a test with a client of a notebook in this process, which does not listen."""

    async def run() -> Any:
        async with asyncio.timeout(HANG_S):
            notebook = Notebook()
            token = SERVICE.set("notebook")
            SERVED_HERE[NOWHERE] = InProcess(NOWHERE, notebook.app(), set())
            SERVICE.reset(token)
            client = Client(NOWHERE, cluster_token=TOKEN, **options)
            try:
                return await test(client, notebook)
            finally:
                await client.close()

    return asyncio.run(run())


CALLS: dict[str, tuple[Api, Any, dict[str, Any]]] = {
    "answered": (NOTE, Note("hello", [1, 2]), {"path": {"name": "a/b ü"}}),
    "a query": (NOTES, Query(7), {}),
    "no body": (FORGET, None, {"path": {"name": "n"}}),
    "refused": (NOTE, Note("refuse"), {"path": {"name": "n"}}),
    "not definite": (NOTE, Note("away"), {"path": {"name": "n"}}),
    "a fault of the service": (NOTE, Note("break"), {"path": {"name": "n"}}),
    "another form": (NOTE, b'{"text":1}', {"path": {"name": "n"}}),
    "not JSON": (NOTE, b"{", {"path": {"name": "n"}}),
    "too large": (SMALL, b'{"text":"%b"}' % (b"x" * 2_000_000), {}),
    "no token": (NOTE, Note("hello"), {"path": {"name": "n"}, "headers": {"Authorization": "Bearer another"}}),
    "another media type": (NOTE, Note("hello"), {"path": {"name": "n"}, "headers": {"Content-Type": "text/plain"}}),
    "a missing query parameter": (NOTES, None, {}),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_has_the_same_outcome_as_over_a_connection(case: str) -> None:
    api, request, options = CALLS[case]

    async def outcome(client: Client) -> Any:
        try:
            return await client.call(api, request, retry=False, **options)
        except ApiError as error:
            form = {
                name: getattr(error, name) for name in ("status", "definite", "detail", "limit", "pointers", "extra")
            }
            return type(error), error.error, form, error.problem and error.problem.code

    async def here(client: Client, _: Notebook) -> Any:
        return await outcome(client)

    def add(app: App) -> None:
        app.paths.endpoints.clear()
        for endpoint in Notebook().app().paths.endpoints:
            app.paths.add(endpoint)

    async def there(port: int) -> Any:
        client = Client(f"http://127.0.0.1:{port}", cluster_token=TOKEN)
        try:
            return await outcome(client)
        finally:
            await client.close()

    with edge_server(prepare=add) as server:
        assert within(here) == asyncio.run(there(server.port))


def test_a_path_that_the_service_lacks_takes_a_connection() -> None:
    """There it is answered as any other unknown path; here nobody listens."""

    async def test(client: Client, _: Notebook) -> None:
        with pytest.raises(ApiError, match="cannot reach"):
            await client.call(MISSING, Note("hello"), retry=False)

    within(test)


def test_a_refusal_that_waits_for_its_turn_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "BURST_S", 0.0)

    async def test(client: Client, _: Notebook) -> None:
        for _turn in range(2):
            with pytest.raises(ApiError, match="needs the cluster token"):
                await client.call(NOTES, Query(), headers={"Authorization": "Bearer another"}, retry=False)

    within(test)


def test_caller_and_service_share_no_object() -> None:
    async def test(client: Client, notebook: Notebook) -> None:
        mine = Note("hello", [1, 2])
        answer = await client.call(NOTE, mine, path={"name": "n"})
        (taken,) = notebook.taken
        mine.numbers.append(3)
        answer.numbers.append(4)
        assert (mine.numbers, taken.numbers, answer.numbers) == ([1, 2, 3], [1, 2], [1, 2, 4])

    within(test)


@pytest.mark.parametrize("how", ["deadline", "cancelled"])
def test_a_caller_that_stops_waiting_does_not_cancel_the_handler(how: str) -> None:
    """A write outlives its request; the handler sees that nobody waits. A deadline is an unknown outcome."""

    async def test(client: Client, notebook: Notebook) -> None:
        call = asyncio.create_task(
            client.call(NOTE, Note("wait"), path={"name": "n"}, deadline_s=0.05 if how == "deadline" else HANG_S)
        )
        if how == "deadline":
            with pytest.raises(ApiError, match="did not answer note in time") as caught:
                await call
            assert not caught.value.definite
        else:
            await notebook.began.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert not notebook.ended.is_set()
        notebook.go.set()
        await notebook.ended.wait()
        assert notebook.gone == [True]

    within(test)


def test_a_worker_that_is_cancelled_leaves_an_unknown_outcome() -> None:
    """As at the end of a server that waits no longer for its requests."""

    async def test(client: Client, notebook: Notebook) -> None:
        call = asyncio.create_task(client.call(NOTE, Note("wait"), path={"name": "n"}, retry=False))
        await notebook.began.wait()
        here: Any = SERVED_HERE[NOWHERE]
        (worker,) = here._workers.tasks
        worker.cancel()
        with pytest.raises(ApiError, match="was lost") as caught:
            await call
        assert not caught.value.definite

    within(test)


def test_a_service_that_has_stopped_leaves_no_task() -> None:
    """A task that is still pending when it is dropped is an error in the log of each stop."""

    async def test(client: Client, notebook: Notebook) -> None:
        await client.call(NOTE, Note("hello"), path={"name": "n"})
        here: Any = SERVED_HERE[NOWHERE]
        (idle,) = here._workers.idle
        here.end()
        await asyncio.wait([idle.task], timeout=HANG_S)
        assert idle.task.cancelled()

    within(test)


def test_a_call_carries_the_request_id_and_runs_as_the_called_service() -> None:
    async def test(client: Client, notebook: Notebook) -> None:
        SERVICE.set("caller")
        REQUEST.set(RequestContext("r-1", None))
        await client.call(NOTE, Note("hello"), path={"name": "n"})
        await client.call(NOTE, Note("hello"), path={"name": "n"})
        assert notebook.seen == [("notebook", "r-1")] * 2
        context = REQUEST.get()
        assert context is not None
        assert (SERVICE.get(), context.request_id) == ("caller", "r-1")

    within(test)


def test_idle_workers_are_used_again() -> None:
    async def test(client: Client, notebook: Notebook) -> None:
        here: Any = SERVED_HERE[NOWHERE]
        for _ in range(5):
            await client.call(NOTE, Note("hello"), path={"name": "n"})
        assert (len(here._workers.idle), here._workers.tasks) == (1, set())

    within(test)
