"""Decides where a service listens, under which name and URL the others know it, and which URLs of Redis a gateway can
use."""

import ipaddress
import socket
from typing import Final
from urllib.parse import urlsplit

SCHEMES: Final = ("redis", "rediss", "unix")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(host: str, allow_anonymous_from_network: bool, prefix: str) -> None:
    """Refuse a public address while callers need no key. Raises: ValueError."""
    if not is_loopback(host) and not allow_anonymous_from_network:
        raise ValueError(
            f"{prefix}HOST={host} is a public address and callers need no key: set {prefix}AUTHENTICATION=required, or"
            f" {prefix}ALLOW_ANONYMOUS_FROM_NETWORK=true if strangers cannot reach it"
        )


def node_name(node_id: str, port: int) -> str:
    """The name of this instance: `node_id`, or the name of the host and the port."""
    return node_id or f"{socket.gethostname()}:{port}"


def own_url(url: str, scheme: str, host: str, port: int) -> str:
    """The URL by which others reach this instance: `url`, or one made from the scheme and the address;
    from the host's name if it binds all."""
    if url:
        return url
    try:
        everywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        everywhere = False
    name = socket.gethostname() if everywhere else host
    return f"{scheme}://[{name}]:{port}" if ":" in name else f"{scheme}://{name}:{port}"


def check_redis_url(url: str) -> None:
    """Raises: ValueError: a gateway cannot use this URL. The text is one sentence, without a password."""
    scheme = urlsplit(url).scheme
    if "sentinel" in scheme or "cluster" in scheme:
        raise ValueError(
            f"{scheme}:// is not supported: name one Redis as redis:// or rediss://, by a name or a proxy that follows"
            " its primary"
        )
    if not url.startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        raise ValueError("a URL of Redis begins with redis://, rediss:// or unix://")
