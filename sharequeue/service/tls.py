"""The certificate of a listener."""

import ssl

from sharequeue_http.calling.connections import Reread


def certificate_of(certificate_file: str, key_file: str) -> Reread:
    """Read a certificate. Both files in PEM: the first has it and then those of its authorities, the key has no
    password. Raises: ValueError: the pair cannot be used. The text is one sentence."""

    def read() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:  # without a password, OpenSSL would ask at the terminal
            context.load_cert_chain(certificate_file, key_file, password="")
        except (OSError, ValueError) as fault:  # ssl.SSLError is an OSError
            raise ValueError(f"{certificate_file} and {key_file} are not a certificate and its key: {fault}") from None
        return context

    return Reread(read, certificate_file, key_file)
