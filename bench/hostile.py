"""`python -m bench.hostile`: the largest requests that one client can make, sent one after another to its own stack.

Each row has the bytes sent, the status and size of the answer, the CPU time of the gateway and of the group
coordinator, the longest answer of `/livez` of each (asked every 20 ms), the most CPU time of the gateway's event loop
within one such answer, and the growth of the gateway's memory at its peak. On a busy machine the answers of `/livez`
take longer, but not the CPU time within one. The table is Markdown, for docs/benchmarks.md.
"""

import http.client
import multiprocessing
import socket
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import click
import msgspec

from bench.processes import cpu_seconds, peak_resident_bytes, reset_peak, resident_bytes, thread_cpu_seconds
from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack

MIB: Final = 1024 * 1024
BODY: Final = 10 * MIB - 1024
"""A little less than the largest body that a gateway accepts."""
WIDE: Final = 10_000
"""Partitions of the wide topic."""
PROBE_S: Final = 0.02
QUIET_S: Final = 0.5
SETTLE_S: Final = 120.0
"""The longest wait for one answer."""

Answer = tuple[str, int]
"""The status, or the name of an exception, and the bytes of the body."""


class Case(NamedTuple):
    """One row. `send` returns the answer, and the number of bytes sent. `prepare` runs before, and is not measured."""

    name: str
    send: Callable[[], tuple[Answer, int]]
    prepare: Callable[[], None] = lambda: None


# Sending


def ask(url: str, method: str, path: str, body: bytes | None = None) -> Answer:
    """Make one request on its own connection."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=SETTLE_S)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body is not None else {})
        response = connection.getresponse()
        return str(response.status), len(response.read())
    except (OSError, http.client.HTTPException) as fault:
        return type(fault).__name__, 0
    finally:
        connection.close()


def post(url: str, path: str, body: bytes) -> tuple[Answer, int]:
    return ask(url, "POST", path, body), len(body)


def flood(url: str, begin: bytes, part: bytes, size: int) -> tuple[Answer, int]:
    """Send `begin`, then `part` until `size` bytes are sent or the server closes the connection."""
    place = urlsplit(url)
    sent = 0
    with socket.create_connection((place.hostname, place.port), timeout=SETTLE_S) as connection:
        try:
            connection.sendall(begin)
            while sent < size:
                connection.sendall(part)
                sent += len(part)
            connection.sendall(b"\r\n\r\n")
        except OSError:
            pass  # the server may have answered before it closed
        try:
            answer = connection.recv(65536)
        except OSError as fault:
            return (type(fault).__name__, 0), sent
    return (answer[9:12].decode("latin-1") or "closed", len(answer)), sent


def filled(begin: bytes, item: bytes, end: bytes, size: int = BODY) -> bytes:
    """A body with as many items between `begin` and `end` as `size` allows."""
    return begin + b",".join([item] * ((size - len(begin) - len(end)) // (len(item) + 1))) + end


def counted(begin: bytes, items: Iterator[bytes], end: bytes) -> bytes:
    return begin + b",".join(items) + end


# The requests


FETCH: Final = "/v1/share-groups/hostile/fetch"
ACKNOWLEDGE: Final = "/v1/share-groups/hostile/acknowledge"
HEAD: Final = b'{"max_wait_ms":0,'
TOPICS: Final = HEAD + b'"topics":['
ACKNOWLEDGEMENTS: Final = b'{"member_id":"m","acknowledgements":['
RECORDS: Final = b'{"records":['


def cases(stack: Stack, groups: int) -> Iterator[Case]:
    url = stack.url
    yield from lists_of_names(url)
    yield from produces(url)
    yield from acknowledgements(url)
    yield from replacements(url)
    yield Case(f"/metrics after {groups:,} groups", lambda: scrape(url), lambda: make_groups(url, groups))
    header = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nx-long: "
    yield Case("a header of 128 MB", lambda: flood(url, header, b"h" * 65536, 128_000_000))
    yield Case("a URL of 128 MB", lambda: flood(url, b"GET /livez?", b"u" * 65536, 128_000_000))


def lists_of_names(url: str) -> Iterator[Case]:
    """Topics and partitions that are named often, or do not exist."""
    for mentions in (1_000, 10_000):
        body = counted(TOPICS, iter([b'"wide"'] * mentions), b"]}")
        yield Case(f"a wide topic named {mentions:,} times", lambda body=body: post(url, FETCH, body))  # type: ignore[misc]
    yield Case("a wide topic named as often as goes in", lambda: post(url, FETCH, filled(TOPICS, b'"wide"', b"]}")))
    yield Case("that topic, named once", lambda: post(url, FETCH, TOPICS + b'"wide"]}'))
    good, some = HEAD + b'"topic_partitions":[{"topic":"small","partitions":[0,', b"]}]}"
    unknown = HEAD + b'"topic_partitions":[{"topic":"small","partitions":['
    acknowledgement = b'{"topic":"nothing","partition":0,"first_offset":0,"last_offset":0,"type":"accept"}'
    yield Case("500,000 partitions that are not there", lambda: post(url, FETCH, filled(unknown, b"7", some, MIB)))
    yield Case(
        "one partition that is there, 400,000 that are not", lambda: post(url, FETCH, filled(good, b"7", some, 800_000))
    )
    yield Case("partitions that are not there, 10 MiB", lambda: post(url, FETCH, filled(unknown, b"999", some)))
    for count in (100_000, 1000):
        body = counted(ACKNOWLEDGEMENTS, iter([acknowledgement] * count), b"]}")
        yield Case(f"{count:,} acknowledgements of no topic", lambda body=body: post(url, ACKNOWLEDGE, body))  # type: ignore[misc]
    names = (b'"nothing-%d"' % number for number in range(300_000))
    yield Case("300,000 names of no topic", lambda: post(url, FETCH, counted(TOPICS, names, b"]}")))
    subscribed = (b'"nothing-%d"' % number for number in range(600_000))
    join = b'{"member_id":"m","subscribed_topic_names":['
    yield Case(
        "a heartbeat with 600,000 names",
        lambda: post(url, "/v1/share-groups/hostile/heartbeat", counted(join, subscribed, b"]}")),
    )


def produces(url: str) -> Iterator[Case]:
    small, wide = "/v1/topics/small/records", "/v1/topics/wide/records"
    yield Case("records of one digit, 10 MiB", lambda: post(url, small, filled(RECORDS, b'{"value":1}', b"]}")))
    yield Case("records of nothing, 10 MiB", lambda: post(url, small, filled(RECORDS, b"{}", b"]}")))
    spread = counted(RECORDS, (b'{"value":1,"partition":%d}' % number for number in range(WIDE)), b"]}")
    yield Case("10,000 records with keys, to 10,000 partitions", lambda: post(url, wide, spread))
    yield Case(
        "one record with a key of 900 KiB, to a wide topic",
        lambda: post(url, wide, RECORDS + b'{"value":1,"key":"%b"}]}' % (b"k" * 900 * 1024)),
    )
    yield Case("50 produces of 10 MiB at once", lambda: at_once(url, 50))


def acknowledgements(url: str) -> Iterator[Case]:
    """Of 1,000 records, and of 10,000 in a commit; and with too many types."""
    types = b'{"topic":"small","partition":0,"first_offset":0,"last_offset":99999,"types":['
    typed = filled(ACKNOWLEDGEMENTS + types, b'"accept"', b"]}]}", 100_000 * len(b'"accept",'))
    yield Case("an acknowledgement with 100,000 types", lambda: post(url, ACKNOWLEDGE, typed))
    yield Case("a fetch with 100,000 types", lambda: post(url, FETCH, HEAD + typed[1:]))
    one = b'{"topic":"small","partition":0,"first_offset":%d,"last_offset":%d,"type":"accept"}'
    every = [one % (offset, offset) for offset in range(WIDE)]
    each = b",".join(every[:1000])
    for group, name, end in (
        ("apart", "1,000 acknowledgements of a record each", b"]}"),
        ("atomic", "the same, `atomic`", b'],"atomic":true}'),
        ("beside", "the same, with `produce`", b'],"produce":[{"topic":"small","records":[{"value":1}]}]}'),
    ):
        yield Case(
            name,
            lambda group=group, end=end: post(  # type: ignore[misc]
                url, f"/v1/share-groups/{group}/acknowledge", ACKNOWLEDGEMENTS + each + end
            ),
            lambda group=group: hold_apart(url, group),  # type: ignore[misc]
        )
    settled = b'{"acknowledgements":[{"group_id":"settled","member_id":"m","acknowledgements":[%b]}]}' % b",".join(
        every
    )
    yield Case(
        "10,000 of them, in the commit of a transaction",
        lambda: post(url, f"/v1/transactions/{begin(url)}/commit", settled),
        lambda: hold_apart(url, "settled"),
    )
    closing = "/v1/share-groups/closing/fetch"
    yield Case(
        "closing a session with a record of each of 10,000 partitions",
        lambda: post(url, closing, SESSION % -1),
        lambda: hold_all(url, closing),
    )


def replacements(url: str) -> Iterator[Case]:
    for records in (20, 10):
        topic = f"compacted-{records}"
        yield Case(
            f"a replacement of 1,000 batches without {1000 * records:,} ranges",
            lambda topic=topic, records=records: post(  # type: ignore[misc]
                url, f"/v1/topics/{topic}/partitions/0/replace-batches", replacement(records)
            ),
            lambda topic=topic, records=records: make_batches(url, topic, records),  # type: ignore[misc]
        )


def at_once(url: str, clients: int) -> tuple[Answer, int]:
    body = b'{"records":[{"value":"%b"}]}' % (b"v" * (BODY - 100))
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda _: ask(url, "POST", "/v1/topics/large/records", body), range(clients)))
    statuses = Counter(status for status, _ in answers)
    counted_statuses = ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))
    return (counted_statuses, max(size for _, size in answers)), clients * len(body)


def scrape(url: str) -> tuple[Answer, int]:
    return ask(url, "GET", "/metrics"), 0


SESSION: Final = b'{"member_id":"m","topics":["wide"],"share_session_epoch":%d,"max_wait_ms":0,"max_records":10000}'


def hold_all(url: str, path: str) -> None:
    """Acquire a record of each partition of the wide topic, in a session."""
    for first in range(0, WIDE, 1000):
        records = (b'{"value":1,"partition":%d}' % partition for partition in range(first, first + 1000))
        ask(url, "POST", "/v1/topics/wide/records", counted(b'{"records":[', records, b"]}"))
    for epoch in range(WIDE // 100):
        _, size = ask(url, "POST", path, SESSION % epoch)
        if epoch and size < 1000:
            return


def hold_apart(url: str, group: str) -> None:
    """Acquire 10,000 records as one member."""
    ask(url, "POST", "/v1/topics/small/records", counted(RECORDS, iter([b'{"value":1}'] * WIDE), b"]}"))
    settings = b'{"config":{"share.partition.max.record.locks":"10000"}}'
    ask(url, "PATCH", f"/v1/share-groups/{group}/config", settings)
    body = b'{"member_id":"m","topics":["small"],"max_wait_ms":0,"max_records":10000}'
    ask(url, "POST", f"/v1/share-groups/{group}/fetch", body)


def begin(url: str) -> str:
    """Begin a transaction. Returns: its id."""
    wanted = urllib.request.Request(f"{url}/v1/transactions", b"{}", {"Content-Type": "application/json"})
    straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # not through a proxy of the environment
    with straight.open(wanted, timeout=SETTLE_S) as answer:
        transaction_id: str = msgspec.json.decode(answer.read())["transaction_id"]
    return transaction_id


def make_batches(url: str, topic: str, records: int) -> None:
    """Append 1,001 batches to a compacted topic."""
    ask(url, "POST", "/v1/topics", msgspec.json.encode({"name": topic, "config": {"cleanup.policy": "compact"}}))
    body = counted(RECORDS, iter([b'{"key":"k","value":1}'] * records), b"]}")
    for _ in range(1001):
        ask(url, "POST", f"/v1/topics/{topic}/records", body)


def replacement(records: int) -> bytes:
    """Each record of the first 1,000 batches is a range of its own."""

    def ranges(batch: int) -> bytes:
        offsets = range(records * batch, records * (batch + 1))
        return b",".join(b'{"first_offset":%d,"last_offset":%d}' % (offset, offset) for offset in offsets)

    batches = (b'{"base_offset":%d,"generation":0,"remove":[%b]}' % (records * n, ranges(n)) for n in range(1000))
    return counted(b'{"batches":[', batches, b"]}")


def make_groups(url: str, groups: int) -> None:
    """Make groups that each hold one record."""
    ask(url, "POST", "/v1/topics/small/records", b'{"records":[{"value":1}]}')

    def fetch(number: int) -> None:
        ask(url, "POST", f"/v1/share-groups/group-{number}/fetch", b'{"topics":["small"],"max_wait_ms":0}')

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fetch, range(groups)))


# Measuring


def probe(url: str, pid: int, longest: "Synchronized[float]", busiest: "Synchronized[float]") -> None:
    """Ask `/livez` every 20 ms. Keep the time of the longest answer,
    and the most CPU time of the main thread within one.

    Runs in its own process.
    """
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=SETTLE_S)
    while True:
        asked, used = time.perf_counter(), thread_cpu_seconds(pid)
        try:
            connection.request("GET", "/livez")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            connection.close()
        longest.value = max(longest.value, time.perf_counter() - asked)
        busiest.value = max(busiest.value, thread_cpu_seconds(pid) - used)
        time.sleep(PROBE_S)


class Probes:
    """One probing process per service."""

    def __init__(self, services: Sequence[ServiceProcess]) -> None:
        self._longest = [multiprocessing.Value("d", 0.0) for _ in services]
        self._busiest = [multiprocessing.Value("d", 0.0) for _ in services]
        self._processes = [
            multiprocessing.Process(target=probe, args=(service.url, service.pid, longest, busiest), daemon=True)
            for service, longest, busiest in zip(services, self._longest, self._busiest, strict=True)
        ]
        for process in self._processes:
            process.start()

    def reset(self) -> None:
        time.sleep(QUIET_S)
        for value in (*self._longest, *self._busiest):
            value.value = 0.0

    def longest_ms(self) -> tuple[list[float], list[float]]:
        """The longest answer of each service, and the most CPU time within one."""
        time.sleep(QUIET_S)
        return [1000 * value.value for value in self._longest], [1000 * value.value for value in self._busiest]

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
            process.join()


def measure(stack: Stack, groups: int, only: str) -> Iterator[tuple[str, ...]]:
    """The rows of the table."""
    gateway = next(service for service in stack.services if service.name == "gateway")
    coordinator = next(service for service in stack.services if service.name == "group coordinator")
    probes = Probes([gateway, coordinator])
    try:
        for case in cases(stack, groups):
            if only not in case.name:
                continue
            case.prepare()
            probes.reset()
            reset_peak(gateway.pid)
            memory = resident_bytes(gateway.pid)
            used = cpu_seconds(gateway.pid), cpu_seconds(coordinator.pid)
            (status, size), sent = case.send()
            stopped, busy = probes.longest_ms()
            stack.check()
            yield (
                case.name,
                _size(sent),
                status,
                _size(size),
                f"{cpu_seconds(gateway.pid) - used[0]:.2f}",
                f"{cpu_seconds(coordinator.pid) - used[1]:.2f}",
                f"{stopped[0]:.0f}",
                f"{busy[0]:.0f}",
                f"{stopped[1]:.0f}",
                f"{max(peak_resident_bytes(gateway.pid) - memory, 0) / MIB:.0f}",
            )
    finally:
        probes.close()


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    return f"{count / 1024:.1f} KiB" if count < MIB else f"{count / MIB:.1f} MiB"


COLUMNS: Final = (
    "request",
    "sent",
    "answer",
    "its size",
    "gateway, CPU s",
    "coordinator, CPU s",
    "gateway stood still, ms",
    "of it CPU, ms",
    "coordinator stood still, ms",
    "gateway grew, MiB",
)


@click.command()
@click.option(
    "--groups", default=10_000, show_default=True, help="groups that hold a record at the request of /metrics"
)
@click.option("--only", default="", help="only requests with this text in their name")
def main(groups: int, only: str) -> None:
    """Send hostile requests to a stack, and print a Markdown table of their costs."""
    with (
        tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp") as directory,
        temporary_stack(Path(directory)) as stack,
    ):
        for topic in (
            {"name": "wide", "partitions": WIDE},
            {"name": "small"},
            {"name": "large", "config": {"max.message.bytes": "52428800"}},
        ):
            ask(stack.url, "POST", "/v1/topics", msgspec.json.encode(topic))
        print(f"| {' | '.join(COLUMNS)} |")
        print(f"| --- | --- | --- {'| ---: ' * (len(COLUMNS) - 3)}|")
        for row in measure(stack, groups, only):
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
