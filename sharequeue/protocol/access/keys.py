"""The form of a key: `sq_<id>_<secret>_<checksum>`. It is shown once; what is stored cannot be shown as a key again.

The id finds the stored key, so nothing is searched by the secret. The checksum finds a key that was cut or mistyped
before anything is looked up, and lets scanners recognise a key that leaked.
"""

import hashlib
import hmac
import re
import zlib
from typing import Final, NamedTuple

ID_BYTES: Final = 8
SECRET_BYTES: Final = 32
KEY_ID: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
KEY: Final = re.compile(r"sq_([0-9a-f]{16})_([0-9a-f]{64})_([0-9a-f]{8})", re.ASCII)


class Key(NamedTuple):
    """A key as its owner has it. `text`: all of it."""

    key_id: str
    text: str

    @property
    def digest(self) -> bytes:
        """Return what is stored of it: 32 bytes. The secret has 256 random bits, so no slow hash is needed."""
        return hashlib.sha256(self.text.encode()).digest()

    def is_of(self, digest: bytes) -> bool:
        """Return whether this key is the stored one, compared in constant time."""
        return hmac.compare_digest(self.digest, digest)


def make_key(key_id: bytes, secret: bytes) -> Key:
    """Make a key of ID_BYTES and SECRET_BYTES random bytes."""
    text = f"sq_{key_id.hex()}_{secret.hex()}"
    return Key(key_id.hex(), f"{text}_{zlib.crc32(text.encode()):08x}")


def parse_key(text: str) -> Key | None:
    """The key that a caller sent; None: it has not the form of one, or its checksum is wrong."""
    found = KEY.fullmatch(text)
    if found is None or f"{zlib.crc32(text[: found.start(3) - 1].encode()):08x}" != found[3]:
        return None
    return Key(found[1], text)
