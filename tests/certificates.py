"""Certificates that tests make: an authority, and pairs of files that it signs."""

import datetime
from pathlib import Path

import trustme


class Authority:
    """An authority of its own. `file`: its certificate in PEM."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ca = trustme.CA()
        self.file = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def pair(self, name: str, *hosts: str, expired: bool = False) -> tuple[Path, Path]:
        """The files of a certificate for `hosts`, and of its key; written again, they replace the pair before."""
        past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        made = self._ca.issue_cert(*hosts, not_after=past if expired else None)
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key.pem"
        certificate.write_bytes(b"".join(part.bytes() for part in made.cert_chain_pems))
        made.private_key_pem.write_to_path(key)
        key.chmod(0o600)
        return certificate, key
