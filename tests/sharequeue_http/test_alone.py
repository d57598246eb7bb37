"""`sharequeue_http` serves and makes a call of a program that has no queue. This file is that program too: the test
runs it in a process of its own, which tells what it heard and which modules it has."""

import asyncio
import json
import socket
import subprocess
import sys

import msgspec
import uvicorn

from sharequeue_http.application.app import App, serve
from sharequeue_http.application.endpoint import Call
from sharequeue_http.calling.caller import Client
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import KNOWN, ApiError, Error
from sharequeue_http.limits import HttpLimits
from sharequeue_http.wire.edge import Edge
from sharequeue_http.wire.protocol import protocol_of


class Order(msgspec.Struct):
    cups: int


class NoMoreTea(ApiError):
    error = Error("NO_MORE_TEA", 409, "The pot is empty")


ORDER = Api("order", "POST /tables/{table}", "", request=Order, response=list[str], tag="Tea")
NOWHERE = Api("nowhere", "GET /nowhere", "", response=Order)


async def pour(call: Call) -> list[str]:
    if call.request.cups > 2:
        raise NoMoreTea("there are 2 cups", limit=2, extra={"left": 2})
    return [call.path["table"]] * call.request.cups


async def refusal(client: Client, api: Api, request: object, **path: str) -> ApiError:
    try:
        answer = await client.call(api, request, path=path)
    except ApiError as error:
        return error
    raise AssertionError(f"it answered {answer}")


async def main() -> None:
    KNOWN.add({NoMoreTea.error: {"type": "urn:tea:empty", "pot": 7}}, dict)
    app = App("tea", "")
    serve(app, ORDER, pour)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=protocol_of(Edge(app, HttpLimits(), 10)), lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", deadline_s=60)
    poured = await client.call(ORDER, Order(2), path={"table": "by the window/é"})
    empty = await refusal(client, ORDER, Order(3), table="1")
    unfit = await refusal(client, ORDER, {"cups": "two"}, table="1")
    unknown = await refusal(client, NOWHERE, None)
    await client.close()
    server.should_exit = True
    await serving
    heard = {
        "classes": [type(error).__name__ for error in (empty, unfit, unknown)],
        "poured": poured,
        "empty": [empty.status, empty.detail, empty.limit, empty.extra, empty.problem["type"], empty.problem["pot"]],
        "unfit": [unfit.status, unfit.pointers, unfit.problem["type"]],
        "unknown": [unknown.status, unknown.detail],
        "modules": sorted({name.partition(".")[0] for name in sys.modules if name.startswith("sharequeue")}),
    }
    print(json.dumps(heard))


def test_a_call_without_a_queue() -> None:
    program = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=300, check=False)
    assert program.returncode == 0, program.stderr
    assert json.loads(program.stdout.splitlines()[-1]) == {
        "classes": ["NoMoreTea", "InvalidRequest", "UnknownPath"],
        "poured": ["by the window/é"] * 2,
        "empty": [409, "there are 2 cups", 2, {"left": 2}, "urn:tea:empty", 7],
        "unfit": [422, [["/cups", "must be an integer, not a string"]], "about:blank"],
        "unknown": [404, "there is nothing at /nowhere"],
        "modules": ["sharequeue_http"],
    }


if __name__ == "__main__":
    asyncio.run(main())
