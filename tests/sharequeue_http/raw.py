"""A raw connection: bytes out, answers in, as `http.client` reads them."""

import socket
from collections.abc import Iterable
from http.client import HTTPResponse

import psutil


class Answered:
    """One answer, read whole."""

    def __init__(self, response: HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()


class Raw:
    """A connection to a port of this machine."""

    def __init__(self, port: int, timeout_s: float = 15) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = self.socket.makefile("rb")

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self._received.close()
        self.socket.close()

    def send(self, *parts: bytes) -> None:
        """Send the parts, each as a packet of its own."""
        for part in parts:
            self.socket.sendall(part)

    def send_until_refused(self, parts: Iterable[bytes]) -> int:
        """Send on until the other end takes no more. Returns: how many bytes it took."""
        sent = 0
        try:
            for part in parts:
                self.socket.sendall(part)
                sent += len(part)
        except OSError:
            pass
        return sent

    def answer(self, method: str = "GET") -> Answered:
        response = HTTPResponse(_Kept(self._received), method=method)  # type: ignore[arg-type]
        response.begin()
        return Answered(response)

    def line(self) -> bytes:
        return self._received.readline()

    def read_all(self) -> bytes:
        """All bytes until the other end closes. Raises: ConnectionResetError."""
        return self._received.read()

    def rest(self) -> bytes:
        """As `read_all`; nothing where the connection was reset."""
        try:
            return self.read_all()
        except ConnectionResetError:
            return b""


class _Kept:
    """Gives HTTPResponse the one file of a connection, and keeps it open for the next answer."""

    def __init__(self, file: object) -> None:
        self._file = file

    def makefile(self, _: str) -> "_Kept":
        return self

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def close(self) -> None:
        pass


def head(line: str, *headers: str, host: str = "localhost") -> bytes:
    """A request's head of HTTP/1.1."""
    return "\r\n".join((f"{line} HTTP/1.1", f"Host: {host}", *headers, "", "")).encode()


def chunked(body: bytes, size: int = 7) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def connections_of(pid: int, port: int) -> int:
    """The number of connections that a process has open with clients at its port."""
    connections = psutil.Process(pid).net_connections("tcp")
    return sum(
        connection.laddr.port == port and connection.status == psutil.CONN_ESTABLISHED for connection in connections
    )
