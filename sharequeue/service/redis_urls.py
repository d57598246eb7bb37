"""Which URLs of Redis a gateway can use."""

from typing import Final
from urllib.parse import urlsplit

SCHEMES: Final = ("redis", "rediss", "unix")


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
