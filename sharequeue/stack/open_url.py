"""HTTP for a look at `/readyz`, with the standard library alone and on any system."""

import ssl
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final


def opener(ca: Path | None) -> Callable[..., Any]:
    """As `urllib.request.urlopen`, but never through a proxy that the environment names. `ca`: the authorities of
    https; None: those of the system."""
    trusted = None if ca is None else ssl.create_default_context(cafile=ca)
    plain, https = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
    return urllib.request.build_opener(plain, https).open


open_url: Final = opener(None)
