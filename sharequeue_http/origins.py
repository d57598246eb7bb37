"""Protects a service that authenticates no caller: refuses the requests that a page of another site could have sent.

A browser sends the requests of a page to any address, including its own machine and network. The page cannot choose two
of the headers. `Host` is the name in the URL that the page calls. A site can point a name of its own at any address;
then the browser treats the page and the service as one site. That is impossible with an IP address or `localhost`.
`Origin`, or `Sec-Fetch-Site` if it is missing, names the site of the page. A browser sends neither with a GET to an
address that is not loopback by plain http. There `Referer` has to name the site: a request that shows a browser and
names no site is refused. A page cannot change `User-Agent` or `Sec-…` without asking first (CORS).

No IO, no clock, no logging. Sources: RFC 9110 7.2, 7.4; RFC 9112 3.2; RFC 6454; the Fetch standard (CORS); Fetch
Metadata.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from sharequeue_http.forms.errors import ApiError, HostNotAllowed, InvalidRequest, OriginNotAllowed
from sharequeue_http.forms.mistakes import quoted

Pairs = tuple[tuple[bytes, bytes], ...]
"""Headers, names in lower case."""

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""They change and acquire nothing, so pages of any origin may send them. The browser hides the answers from the
page."""
_OWN_SITE: Final = b"same-origin"
"""`Sec-Fetch-Site` of a page of this service."""
_NO_PAGE: Final = b"none"
"""`Sec-Fetch-Site` of a request that the user made without a page."""
_BROWSER: Final = b"mozilla/"
"""The beginning of `User-Agent` of each browser, in lower case."""
_ACCEPT: Final = b"application/xhtml+xml"
"""In `Accept` of a link or form that a browser follows."""
_SENT_BY_BROWSERS: Final = frozenset({b"sec-fetch-dest", b"sec-fetch-site", b"sec-ch-ua", b"sec-gpc"})
"""Not `Sec-Fetch-Mode`: the fetch of Node.js sends it too."""
_METHODS: Final = b"GET, POST, PATCH, DELETE"
_EXPOSED: Final = ("Retry-After", "X-Request-Id")
_PREFLIGHT_S: Final = b"600"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)(?:%[\w.~%-]+)?\]|([\w.~!$&'()*+,;=%-]+))(?::([0-9]{0,5}))?", re.ASCII)
_NAME: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*", re.ASCII)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*", re.ASCII)
_MOST_KNOWN: Final = 256
_LONGEST_KNOWN: Final = 262
"""Longer values are not cached: the longest DNS name and a port have this length."""


class Authority(NamedTuple):
    """A host and a port. `host`: in lower case, without a final dot; an IPv6 address without brackets."""

    host: str
    port: int | None

    def is_address(self) -> bool:
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return False
        return True


class Origin(NamedTuple):
    """The origin of a page. `port`: None for the default port of the scheme."""

    scheme: str
    host: str
    port: int | None


_Refusal = Callable[[], ApiError]
"""Makes the error of a refusal, which is remembered."""


def parse_authority(text: str) -> Authority | None:
    """Parse `host` or `host:port`; None if it is neither."""
    found = _HOST.fullmatch(text.lower())
    if found is None:
        return None
    address, name, port = found.groups()
    if address is not None:
        try:
            name = str(ipaddress.IPv6Address(address))
        except ValueError:
            return None
    if port and int(port) > 65535:
        return None
    return Authority(name.removesuffix("."), int(port) if port else None)


def parse_origin(text: str) -> Origin | None:
    """Parse `scheme://host` or `scheme://host:port`; None if it is neither, for example `null`."""
    scheme, found, rest = text.lower().partition("://")
    authority = parse_authority(rest) if found and _SCHEME.fullmatch(scheme) else None
    if authority is None:
        return None
    return Origin(scheme, authority.host, None if authority.port == _DEFAULT_PORTS.get(scheme) else authority.port)


def host_of_url(url: str) -> str:
    """The host of a URL of http or https. Raises: ValueError: it has none."""
    parts = urlsplit(url)
    authority = parse_authority(parts.netloc.rpartition("@")[2])
    if authority is None or parts.scheme not in _DEFAULT_PORTS:
        raise ValueError(f"{url!r} is not a URL of the form http://host:port")
    return authority.host


def hosts_of(setting: str) -> list[str]:
    """The host names that a setting lists, separated by commas. Raises: ValueError: one is not a name."""
    hosts = []
    for text in filter(None, map(str.strip, setting.split(","))):
        host = text.lower().removesuffix(".")
        if not _NAME.fullmatch(host):
            raise ValueError(f"{text!r} is not a host name: give names without scheme, port and wildcard")
        hosts.append(host)
    return hosts


def origins_of(setting: str) -> list[str]:
    """The origins that a setting lists, separated by commas. Raises: ValueError: one is not an origin."""
    origins = list(filter(None, map(str.strip, setting.split(","))))
    for origin in origins:
        if origin != "*" and parse_origin(origin) is None:
            raise ValueError(f"{origin!r} is not an origin: give scheme://host or scheme://host:port, or * for all")
    return origins


class Callers:
    """The hosts that requests may name, and the origins whose pages may call. Recent decisions are cached."""

    def __init__(
        self, hosts: Iterable[str] = (), origins: Sequence[str] = (), prefix: str = "", exposed: Sequence[str] = ()
    ) -> None:
        """Take the settings.

        Args:
            hosts: names that requests may use besides addresses and localhost, as `hosts_of` and `host_of_url` give
            them. origins: of pages that may call, as `origins_of` gives them; `*`: of all pages. prefix: of the
            environment variables ALLOW_HOSTS and ALLOW_ORIGINS, which have both. exposed: headers of answers that pages
            may read, besides those of every answer.
        """
        self._allow_hosts = f"allow_hosts ({prefix}ALLOW_HOSTS)"
        self._allow_origins = f"allow_origins ({prefix}ALLOW_ORIGINS)"
        self._hosts = frozenset(hosts)
        self._exposed = (b"access-control-expose-headers", ", ".join((*exposed, *_EXPOSED)).encode())
        self._any_origin = "*" in origins
        self._origins = frozenset(parse_origin(origin) for origin in origins if origin != "*")
        self._host_known = lru_cache(_MOST_KNOWN)(self._host_fault)
        self._origin_known = lru_cache(_MOST_KNOWN)(self._origin_fault)

    def refusal(
        self, method: str, sent: Sequence[tuple[bytes, bytes]], headers: Mapping[bytes, bytes]
    ) -> ApiError | None:
        """The reason to refuse a request, or None.

        Args:
            sent: all headers of the request, names in lower case. headers: the same by name.
        Returns: InvalidRequest (400), HostNotAllowed (421) or OriginNotAllowed (403).
        """
        if len(headers) != len(sent) and (refusal := _given_twice(sent)) is not None:
            return refusal
        host = headers.get(b"host")
        if host is None:
            detail = "the request has no header Host; send Host: <host> or Host: <host>:<port>"
            return InvalidRequest(detail, status=400)
        known = len(host) <= _LONGEST_KNOWN
        refused = self._host_known(host) if known else self._host_fault(host)
        if refused is None and (method not in SAFE_METHODS or _is_preflight(method, headers)):
            origin = headers.get(b"origin")
            if origin is not None:
                known = known and len(origin) <= _LONGEST_KNOWN
                refused = self._origin_known(origin, host) if known else self._origin_fault(origin, host)
            elif not self._any_origin and (
                headers.get(b"user-agent", b"")[: len(_BROWSER)].lower() == _BROWSER
                or _ACCEPT in headers.get(b"accept", b"")
                or not _SENT_BY_BROWSERS.isdisjoint(headers)
            ):
                refused = self._without_origin(headers, host)
        return None if refused is None else refused()

    def answer_headers(self, origin: bytes | None) -> Pairs:
        """The CORS headers of an answer to a page of this origin, which let the page read it."""
        if origin is None or not (self._origins or self._any_origin):
            return ()
        if self._any_origin:
            return (b"access-control-allow-origin", b"*"), self._exposed
        if parse_origin(origin.decode("latin-1")) in self._origins:
            return (b"access-control-allow-origin", origin), (b"vary", b"Origin"), self._exposed
        return ()

    def preflight(self, method: str, headers: Mapping[bytes, bytes]) -> Pairs | None:
        """The headers of the answer to a browser that asks whether a page may call; None for other requests.

        Call it after `refusal` has allowed the request.
        """
        if not _is_preflight(method, headers):
            return None
        wanted = headers.get(b"access-control-request-headers")
        return (
            (b"access-control-allow-methods", _METHODS),
            *(() if wanted is None else ((b"access-control-allow-headers", wanted),)),
            (b"access-control-max-age", _PREFLIGHT_S),
        )

    def _host_fault(self, sent: bytes) -> _Refusal | None:
        authority = parse_authority(sent.decode("latin-1"))
        if authority is None:
            detail = f"the header Host is {_shown(sent)}; send <host> or <host>:<port>"
            return partial(InvalidRequest, detail, status=400)
        host = authority.host
        if authority.is_address() or host == "localhost" or host.endswith(".localhost") or host in self._hosts:
            return None
        return partial(
            HostNotAllowed,
            f"this service does not serve requests for the host {_shown(sent)}: any web site can point a name of its own"
            f" here. Use an IP address or localhost; if the name is the service's, add it to the setting {self._allow_hosts}",
        )

    def _origin_fault(self, sent: bytes, host: bytes) -> _Refusal | None:
        if self._may_call(parse_origin(sent.decode("latin-1")), host):
            return None
        return partial(
            OriginNotAllowed,
            f"a page of the origin {_shown(sent)} made this call; if its pages may call, add the origin to the setting"
            f" {self._allow_origins}",
        )

    def _without_origin(self, headers: Mapping[bytes, bytes], host: bytes) -> _Refusal | None:
        """Return why to refuse a browser's request without `Origin`: no other header proves that its page may call."""
        if headers.get(b"sec-fetch-site") in (_OWN_SITE, _NO_PAGE):
            return None
        page = parse_origin("/".join(headers.get(b"referer", b"").decode("latin-1").split("/", 3)[:3]))
        if self._may_call(page, host):
            return None
        return partial(
            OriginNotAllowed,
            "a browser made this call, and no header proves that its page may call: Origin is missing, and Referer and"
            " Sec-Fetch-Site do not name this service or an allowed page. Pages that may call send Origin, and the"
            f" setting {self._allow_origins} lists their origins",
        )

    def _may_call(self, origin: Origin | None, host: bytes) -> bool:
        """Return whether pages of an origin may call the allowed host, whose own pages may have either scheme: a proxy
        may have ended TLS."""
        if self._any_origin or origin in self._origins:
            return True
        authority = parse_authority(host.decode("latin-1"))
        if origin is None or authority is None or origin.scheme not in _DEFAULT_PORTS:
            return False
        port = None if authority.port == _DEFAULT_PORTS[origin.scheme] else authority.port
        return (origin.host, origin.port) == (authority.host, port)


def _given_twice(sent: Sequence[tuple[bytes, bytes]]) -> ApiError | None:
    for name in (b"host", b"origin", b"authorization"):
        if sum(other == name for other, _ in sent) > 1:
            detail = f"the request has more than one header {name.decode().title()}; send one"
            return InvalidRequest(detail, status=400)
    return None


def _is_preflight(method: str, headers: Mapping[bytes, bytes]) -> bool:
    return method == "OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers


def _shown(sent: bytes) -> str:
    return repr(quoted(sent.decode("latin-1")))
