"""A name server that knows no name, for the containers of our own engine.

The engine knows the names of containers that run, and asks a name server for all others, also for containers that are
gone. This machine's is out of reach of the containers, and Debian's engine leaves the question without an answer:
each lookup would wait 10 s, and those behind it in the same process too.
"""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from typing import Final

PORT: Final = 53
HEADER: Final = 12
NO_SUCH_NAME: Final = b"\x81\x83" + b"\0\1" + b"\0\0" * 3
"""Flags, and how many questions, answers and others follow. Source: RFC 1035, 4.1.1."""


class _NoSuchName(socketserver.DatagramRequestHandler):
    """Answers NXDOMAIN, with the first question of the query."""

    def handle(self) -> None:
        query = self.rfile.read()
        end = query.index(b"\0", HEADER) + 5  # the name ends with an empty label; then its type and class
        self.wfile.write(query[:2] + NO_SUCH_NAME + query[HEADER:end])


@contextlib.contextmanager
def name_server() -> Iterator[str]:
    """Yields: its address, one of this machine that containers reach. Raises: OSError: the port is in use."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect(("192.0.2.1", PORT))  # nothing is sent
        address = str(route.getsockname()[0])
    with socketserver.UDPServer((address, PORT), _NoSuchName) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield address
        finally:
            server.shutdown()
