"""Pages of other origins that may call the gateway from a browser. Source: the Fetch standard, CORS."""

from typing import Final
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

METHODS: Final = ("GET", "POST", "PATCH", "DELETE")
TOLD: Final = ("Acknowledge-Failed", "Retry-After", "X-Request-Id")
"""Headers of answers that a page may read."""


def origins_of(setting: str) -> list[str]:
    """The origins that a setting lists, with commas between. Raises: ValueError: one is none."""
    origins = [origin.strip() for origin in setting.split(",") if origin.strip()]
    for origin in origins:
        parts = urlsplit(origin)
        if origin != "*" and (not parts.netloc or f"{parts.scheme}://{parts.netloc}" != origin):
            raise ValueError(f"{origin!r} is no origin: give scheme://host or scheme://host:port, or * for all")
    return origins


def allow_origins(app: ASGIApp, origins: list[str]) -> ASGIApp:
    """The application as pages of these origins may call it too."""
    if not origins:
        return app
    return CORSMiddleware(app, allow_origins=origins, allow_methods=METHODS, allow_headers=("*",), expose_headers=TOLD)
