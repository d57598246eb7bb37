"""Several gateways and coordinators in containers, by the commands of docs/configuration.md."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Final

import httpx

from tests.compose import compose_file
from tests.compose.engine import say
from tests.compose.main_job import do_main_job, finish
from tests.compose.project import Project
from tests.shown import sentences

PAGE: Final = compose_file.ROOT / "docs" / "configuration.md"


class InTurn(httpx.BaseTransport):
    """Sends each request to the next gateway."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._inner = httpx.HTTPTransport()
        self._urls = itertools.cycle(map(httpx.URL, urls))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(port=next(self._urls).port)
        return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


def commands() -> tuple[str, str]:
    """Those of the page: the one for several gateways, and the one for several coordinators."""
    gateways, coordinators = (code for code in sentences(PAGE.read_text()) if "docker compose up --scale" in code)
    return gateways, coordinators


def use_several(stack: Project) -> None:
    """The main job through all gateways in turn. tests/cluster kills some of them."""
    for number, command in enumerate(commands()):
        say(command)
        with stack.shown(command) as urls:
            for url in urls:
                stack.wait_for(lambda url=url, urls=urls: check_ready(url, len(urls)))  # type: ignore[misc]
            with client(urls, stack.login()) as each:
                do_main_job(each, f"scaled-{number}")
                finish(each, f"scaled-{number}")


def check_ready(url: str, gateways: int) -> None:
    """The gateway knows the others; Redis answers it, and so has all its locks."""
    ready = httpx.get(f"{url}/readyz", timeout=40).json()
    assert (ready["status"], len(ready["gateways"])) == ("ready", gateways), ready


def client(urls: Sequence[str], headers: Mapping[str, str]) -> httpx.Client:
    return httpx.Client(base_url=urls[0], headers=headers, transport=InTurn(urls), timeout=40)
