"""The settings of a client of Kafka: the brokers, and how it proves who calls."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Say where the brokers are and who calls.

    Attributes:
        bootstrap_servers: "HOST:PORT[,HOST:PORT...]"; one that answers is enough.
        ca_file: PEM of the authority that signed the brokers' certificates; empty means the machine's authorities.
        password: with PLAIN and SCRAM the password; with OAUTHBEARER the token.
        password_file: a file that holds it, read at each connection; it wins over `password`.
        request_timeout_ms: how long an answer may take before the connection counts as broken.
        call_timeout_ms: how long a call may take with its repeats.
    """

    bootstrap_servers: str
    client_id: str = "sharequeue"
    security_protocol: SecurityProtocol = "PLAINTEXT"
    ca_file: str = ""
    sasl_mechanism: Mechanism = "PLAIN"
    user: str = ""
    password: str = ""
    password_file: str = ""
    request_timeout_ms: int = 5_000
    call_timeout_ms: int = 8_000

    def secret(self) -> str:
        return Path(self.password_file).read_text().strip() if self.password_file else self.password
