"""The certificate of a listener: read at the start, and again when its files change.

A pair that cannot be used is logged, and the one before it stays. Connections keep the certificate they began with.
"""

import logging
import ssl
from typing import Final

from sharequeue.repeats import Every
from sharequeue_http.calling.connections import Stamp, stamp_of
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""Seconds between two looks at the files."""


class Certificate:
    """`context`: for the server's connections. Its certificate changes while it is in use."""

    def __init__(self, certificate_file: str, key_file: str) -> None:
        """Both files in PEM; the first has the certificate and then those of its authorities, the key has no password.

        Raises: ValueError: the pair cannot be used. The text is one sentence.
        """
        self._files = certificate_file, key_file
        self._seen = self._stamps()
        self.context = self._load(_empty())

    def look(self) -> None:
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            self._load(_empty())  # a pair that fails half-way must not be left in the context that is in use
            self._load(self.context)
        except ValueError as fault:
            log.error(
                "the changed certificate is not used, and the one before it stays", extra=fields(cause=str(fault))
            )
        else:
            log.info("took the changed certificate", extra=fields(file=self._files[0]))

    async def watch(self) -> None:
        """Look at the files again and again. Never returns."""
        async for _ in Every(LOOK_S):
            self.look()

    def _stamps(self) -> tuple[Stamp, ...]:
        return tuple(map(stamp_of, self._files))

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        try:
            context.load_cert_chain(*self._files, password="")  # without one, OpenSSL would ask at the terminal
        except (OSError, ValueError) as fault:  # ssl.SSLError is an OSError
            raise ValueError(
                f"{self._files[0]} and {self._files[1]} are not a certificate and its key: {fault}"
            ) from None
        return context


def _empty() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
