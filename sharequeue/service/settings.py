"""Settings from environment variables. No other module of a service reads the environment.

A variable with the service's prefix that names no setting fails the start: a misspelt setting must not pass silently.
"""

import difflib
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec

from sharequeue_http.calling.connections import NO_USER, Reread, trust
from sharequeue_http.forms.mistakes import unfit_query
from sharequeue_http.forms.texts import convert_texts
from sharequeue_http.limits import HttpLimits

Positive = Annotated[int, msgspec.Meta(ge=1)]
"""A duration, a size or a count that must not be 0."""
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Shards = Annotated[int, msgspec.Meta(ge=1, le=1024)]
LeaseMs = Annotated[int, msgspec.Meta(ge=300)]
"""Shorter leases could not be renewed in time."""

LOG_LEVELS: Final = ("debug", "info", "warning", "error")

URLS: Final = ("url", "coordinator_url", "share_coordinator_url")
TOKEN_CHARACTERS: Final = 16

T = TypeVar("T", bound=msgspec.Struct)


class SettingsError(Exception):
    """The environment holds no valid settings; the text names the variable at fault."""


class ServiceSettings(HttpLimits, frozen=True, kw_only=True):
    """The settings of every service. Durations in milliseconds."""

    cluster_token: str
    """The secret that services show each other: the same for all, at least 16 characters. `python3 -c "import
    secrets; print(secrets.token_hex(24))"` makes one."""
    port: Port
    """The port to bind; 0 takes any free one."""
    host: str = "127.0.0.1"
    """The address to bind."""
    operations_port: Port | None = None
    """A port of its own for `/metrics` and the details of `/readyz`, for anybody who reaches it, without a key. The
    port of the calls then answers no `/metrics`, and `/readyz` with the status alone. Without it, that port answers
    both. 0 takes any free one."""
    operations_host: str = ""
    """The address of `operations_port` to bind. If it is empty, `host`."""
    log_level: str = "info"
    """debug, info, warning or error."""
    tls_certificate_file: str = ""
    """A file in PEM: the certificate of this service, and then those of its authorities. With it and `tls_key_file` the
    service speaks https alone, TLS 1.2 or later. A changed pair holds for each connection from then on; one that does
    not fit is logged, and the one before it stays."""
    tls_key_file: str = ""
    """A file in PEM: the key of the certificate, without a password."""
    ca_file: str = ""
    """A file in PEM: the authorities by which this service checks the https URLs of other services, and the host names
    in their certificates. A changed file holds for each connection from then on; one that cannot be used is logged, and
    the one before it stays. If it is empty, those of the system decide."""

    @property
    def scheme(self) -> str:
        """`http`, or `https` with a certificate."""
        return "https" if self.tls_certificate_file else "http"

    def certificate(self) -> Reread | None:
        """The certificate of the listener; None without TLS. Raises: ValueError, in one sentence: it cannot be used."""
        files = self.tls_certificate_file, self.tls_key_file

        def read() -> ssl.SSLContext:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.set_alpn_protocols(["http/1.1"])
            try:  # without a password, OpenSSL would ask at the terminal
                context.load_cert_chain(*files, password="")
            except (OSError, ValueError) as fault:  # ssl.SSLError is an OSError
                raise ValueError(f"{' and '.join(files)} are not a certificate and its key: {fault}") from None
            return context

        return Reread(read, *files) if self.tls_certificate_file else None

    def check(self, prefix: str) -> None:
        """Raises: SettingsError: there is no such log level; a URL of a service names a user; the token can be guessed,
        or no HTTP header can carry it; files of certificates cannot be used.

        `prefix`: of the variables.
        """
        if self.log_level.lower() not in LOG_LEVELS:
            raise SettingsError(f"{prefix}LOG_LEVEL must be one of {', '.join(LOG_LEVELS)}, not {self.log_level!r}")
        try:
            if bool(self.tls_certificate_file) != bool(self.tls_key_file):
                raise ValueError("give TLS_CERTIFICATE_FILE and TLS_KEY_FILE, or neither")
            self.certificate()
            trust(self.ca_file or None)
        except ValueError as fault:
            raise SettingsError(f"{prefix}…_FILE: {fault}") from None
        for name in URLS:
            if "@" in getattr(self, name, ""):
                raise SettingsError(f"{prefix}{name.upper()}: {NO_USER}")
        token = self.cluster_token
        if len(token) < TOKEN_CHARACTERS or not (token.isascii() and token.isprintable() and token == token.strip()):
            raise SettingsError(
                f"{prefix}CLUSTER_TOKEN must have at least {TOKEN_CHARACTERS} characters, printable ASCII with no space at the"
                ' ends; make one with: python3 -c "import secrets; print(secrets.token_hex(24))"'
            )


def load(settings_type: type[T], prefix: str, environment: Mapping[str, str] | None = None) -> T:
    """Build `settings_type` from the variables that begin with `prefix`.

    Args:
        settings_type: a frozen msgspec Struct; field `database_url` is read from `<prefix>DATABASE_URL`.
        prefix: upper case, ends with `_`. A name with `_FILE` behind it gives the file that has the value. The line
        break at its end does not count.
        environment: the variables; the process's own when absent.
    Raises: SettingsError: unknown variable, missing one, one given twice, a file that cannot be read, or a value of the
        wrong type.
    """
    environment = os.environ if environment is None else environment
    values = {
        name.removeprefix(prefix).lower(): value for name, value in environment.items() if name.startswith(prefix)
    }
    for name in values.keys() - set(settings_type.__struct_fields__):
        setting = name.removesuffix("_file")
        if setting != name and setting in settings_type.__struct_fields__:
            if setting in values:
                raise SettingsError(f"{prefix}{setting.upper()} and {prefix}{name.upper()} are both given: give one")
            values[setting] = _content(values.pop(name), prefix + name.upper())
    unknown = values.keys() - set(settings_type.__struct_fields__)
    if unknown:
        names = ", ".join(sorted(prefix + name.upper() for name in unknown))
        close = difflib.get_close_matches(min(unknown), settings_type.__struct_fields__, 1)
        meant = f"did you mean {prefix}{close[0].upper()}? " if close else ""
        raise SettingsError(f"unknown setting {names}; {meant}docs/configuration.md lists all")
    try:
        settings: T = convert_texts(values, settings_type)
        return settings
    except msgspec.ValidationError as fault:
        (pointer, detail), *_ = unfit_query(fault, settings_type).pointers
        wrong = detail.replace("a boolean", "true or false")
        raise SettingsError(f"{prefix}{pointer.removeprefix('/').upper()}: {wrong}") from fault


def _content(path: str, variable: str) -> str:
    """The text of a file, without the line break at its end. Raises: SettingsError; the text is not repeated."""
    try:
        return Path(path).read_text("utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as fault:
        raise SettingsError(f"{variable}: {path} cannot be read: {fault.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{variable}: {path} is not UTF-8") from None
