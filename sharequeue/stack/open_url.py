"""HTTP for a look at `/readyz`, with the standard library alone and on any system."""

import urllib.request
from typing import Final

open_url: Final = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
"""As `urllib.request.urlopen`, but never through a proxy that the environment names."""
