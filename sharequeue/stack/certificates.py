"""Certificates of a stack that speaks https: an authority that stays, and one certificate for all services, made at
each start. The program `openssl` makes them. Nobody else has the authority's key, so whoever trusts it trusts this
stack alone."""

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sharequeue_http.origins import Authority

NEW_KEY: Final = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
OF_SERVICES: Final = """basicConstraints=CA:FALSE
extendedKeyUsage=serverAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
subjectAltName="""


def make_certificates(folder: Path, hosts: Iterable[str]) -> dict[str, str]:
    """Make an authority, if there is none, and a certificate for these addresses and names. Some clients take none that
    holds for more than 397 days.

    Returns: the settings of the services; `CA_FILE` is for clients, too. Raises: OSError: the text says why.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    if not (folder / "ca.pem").exists():
        may = "-days 3650 -addext keyUsage=critical,keyCertSign,cRLSign"
        _openssl(folder, f"req -x509 {NEW_KEY} -subj /CN=sharequeue-up {may} -keyout ca.key.pem -out ca.partial")
        (folder / "ca.partial").rename(folder / "ca.pem")
    names = ",".join(f"{'IP' if Authority(host, None).is_address() else 'DNS'}:{host}" for host in dict.fromkeys(hosts))
    (folder / "tls.ext").write_text(f"{OF_SERVICES}{names}\n")
    _openssl(folder, f"req {NEW_KEY} -subj /CN=sharequeue -keyout tls.key.pem -out tls.csr")
    signed = "-CA ca.pem -CAkey ca.key.pem -CAcreateserial -days 397 -extfile tls.ext"
    _openssl(folder, f"x509 -req -in tls.csr {signed} -out tls.pem")
    files = {"TLS_CERTIFICATE_FILE": "tls.pem", "TLS_KEY_FILE": "tls.key.pem", "CA_FILE": "ca.pem"}
    return {setting: str(folder / file) for setting, file in files.items()}


def _openssl(folder: Path, arguments: str) -> None:
    command = ["openssl", *arguments.split()]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, stdin=subprocess.DEVNULL, umask=0o077)
    except FileNotFoundError:
        raise OSError("--secure needs the program `openssl`, which is not on the PATH: install it") from None
    except subprocess.CalledProcessError as fault:
        said = fault.stderr.decode(errors="replace").strip()
        raise OSError(f"openssl cannot make the certificates of --secure: {said}") from None
