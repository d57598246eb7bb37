"""Certificates of a stack that speaks https: an authority that stays, and one certificate for all services, made at
each start. The program `openssl` makes them. Nobody else has the authority's key, so whoever trusts it trusts this
stack alone."""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from sharequeue_http.origins import Authority

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 397
"""Some clients take none that holds for longer."""
NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")

EXTENSIONS: Final = (
    "basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
)


class Certificates(NamedTuple):
    """Files in PEM. `ca`: for clients."""

    ca: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path, hosts: Iterable[str]) -> Certificates:
    """Make what is missing of an authority, and a certificate for these addresses and names.

    Raises: OSError: the text says why.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    ca, ca_key, request, extensions = (folder / name for name in ("ca.pem", "ca.key.pem", "tls.csr", "tls.ext"))
    made = Certificates(ca, folder / "tls.pem", folder / "tls.key.pem")
    if not ca.exists():
        new = folder / "ca.partial"
        days, subject = ("-days", str(AUTHORITY_DAYS)), ("-subj", "/CN=sharequeue up")
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        _openssl("req", "-x509", *NEW_KEY, *days, *subject, *usage, "-keyout", ca_key, "-out", new)
        new.rename(ca)
    _openssl("req", *NEW_KEY, "-subj", "/CN=sharequeue", "-keyout", made.key, "-out", request)
    names = ",".join(f"{'IP' if Authority(host, None).is_address() else 'DNS'}:{host}" for host in dict.fromkeys(hosts))
    extensions.write_text(f"{EXTENSIONS}subjectAltName={names}\n")
    signed = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", str(CERTIFICATE_DAYS), "-extfile", extensions)
    _openssl("x509", "-req", "-in", request, *signed, "-out", made.certificate)
    return made


def _openssl(*arguments: str | Path) -> None:
    try:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, stdin=subprocess.DEVNULL, umask=0o077)
    except FileNotFoundError:
        raise OSError("--secure needs the program `openssl`, which is not on the PATH: install it") from None
    except subprocess.CalledProcessError as fault:
        said = fault.stderr.decode(errors="replace").strip()
        raise OSError(f"openssl cannot make the certificates of --secure: {said}") from None
