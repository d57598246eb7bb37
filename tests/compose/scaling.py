"""Several gateways and coordinators in containers, by the commands of docs/configuration.md."""

import itertools
from collections.abc import Sequence
from typing import Any, Final

import httpx

from tests.compose import compose_file
from tests.compose.engine import say
from tests.compose.main_job import acknowledge, ask, check_held, do_main_job, fetch, finish
from tests.compose.project import PROJECT, Project
from tests.shown import sentences

PAGE: Final = compose_file.ROOT / "docs" / "configuration.md"
PARTITIONS: Final = 30
"""So many that each of three gateways leads some."""


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
    for command, use in zip(commands(), (use_gateways, use_coordinators), strict=True):
        say(command)
        with stack.shown(command) as urls:
            use(stack, urls)


def use_gateways(stack: Project, urls: Sequence[str]) -> None:
    """The main job through all of them; then one dies, and the others take over with its locks."""

    def wait_until_ready(gateways: Sequence[str]) -> None:
        """Each knows the others; Redis answers it, and so has all its locks."""

        def check(url: str) -> None:
            ready = httpx.get(f"{url}/readyz", timeout=40).json()
            assert (ready["status"], len(ready["gateways"])) == ("ready", len(gateways)), ready

        for url in gateways:
            stack.wait_for(lambda url=url: check(url))  # type: ignore[misc]

    wait_until_ready(urls)
    with client(urls) as each:
        do_main_job(each, "gateways")
        finish(each, "gateways")

    first, second, *_ = urls
    with client([first]) as one:
        ask(one, "PATCH", "/v1/share-groups/spread/config", {"config": {"share.record.lock.duration.ms": "300000"}})
        ask(one, "POST", "/v1/topics", {"name": "spread", "partitions": PARTITIONS})
        records = [{"partition": partition, "value": partition} for partition in range(PARTITIONS)]
        ask(one, "POST", "/v1/topics/spread/records", {"records": records})
        held: list[dict[str, Any]] = []
        leaders: dict[int, str] = {}
        while len(held) < PARTITIONS:
            answer = fetch(one, "spread", "holder")
            assert answer["batches"], f"{len(held)} of {PARTITIONS} partitions came"
            held += answer["batches"]
            leaders |= {leader["partition"]: leader["node_id"] for leader in answer["leaders"]}
    assert len({*leaders.values()}) == len(urls) - 1, f"no gateway but the first leads any of them: {leaders}"
    (dying,) = [
        container
        for container in stack.engine.containers(PROJECT, "gateway")
        for bindings in container["NetworkSettings"]["Ports"].values()
        if bindings and second.endswith(f":{bindings[0]['HostPort']}")
    ]
    wait_until_ready(urls)
    stack.engine.docker("kill", dying["Id"])
    left = [url for url in urls if url != second]
    wait_until_ready(left)
    with client(left) as others:
        for batch in held:
            acknowledge(others, "spread", "holder", 0, ["accept"], batch["delivery_count"], batch["partition"])


def use_coordinators(stack: Project, urls: Sequence[str]) -> None:
    """The main job; one coordinator of each kind dies, and the other ones take over."""
    with client(urls) as one:
        do_main_job(one, "coordinators")
        for kind in ("coordinator", "share-coordinator"):
            dying, _ = stack.engine.containers(PROJECT, kind)
            stack.engine.docker("kill", dying["Id"])
        stack.wait_for(lambda: check_held(one, "coordinators"))
        stack.wait_for(lambda: finish(one, "coordinators"))
        do_main_job(one, "without-two")


def client(urls: Sequence[str]) -> httpx.Client:
    return httpx.Client(base_url=urls[0], transport=InTurn(urls), timeout=40)
