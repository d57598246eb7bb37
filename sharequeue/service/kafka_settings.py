"""The settings of a service whose record log is Kafka: `record_log`, and those that begin with `kafka_`."""

from importlib.util import find_spec
from typing import Any, Final

from sharequeue.service.settings import SettingsError
from sharequeue_kafka.settings import KafkaSettings

KAFKA: Final = "kafka"
LIBRARIES: Final = ("aiokafka", "cramjam")
NAMES: Final = (
    "bootstrap_servers",
    "security_protocol",
    "ca_file",
    "sasl_mechanism",
    "user",
    "password",
    "password_file",
)


def kafka_settings(settings: Any) -> KafkaSettings | None:
    """Return how to reach the brokers, from the settings of a service; None: PostgreSQL has the records."""
    if settings.record_log != KAFKA:
        return None
    return KafkaSettings(**{name: getattr(settings, f"kafka_{name}") for name in NAMES})


def check_record_log(settings: Any, prefix: str) -> None:
    """Raises: SettingsError: Kafka is the record log and no broker is named, or the other way round; no user is named
    for SASL; the libraries are not installed."""
    if (settings.record_log == KAFKA) != bool(settings.kafka_bootstrap_servers):
        raise SettingsError(f"give {prefix}RECORD_LOG=kafka and {prefix}KAFKA_BOOTSTRAP_SERVERS, or neither")
    missing = [module for module in LIBRARIES if find_spec(module) is None]
    if settings.record_log == KAFKA and missing:
        raise SettingsError(f"{missing[0]} is not installed: install sharequeue with its extra [kafka]")
    bearer = settings.kafka_sasl_mechanism == "OAUTHBEARER"
    secret = settings.kafka_password or settings.kafka_password_file
    if settings.kafka_security_protocol.startswith("SASL") and not (secret and (bearer or settings.kafka_user)):
        needed = "a token" if bearer else f"{prefix}KAFKA_USER and a password"
        raise SettingsError(
            f"{prefix}KAFKA_SASL_MECHANISM={settings.kafka_sasl_mechanism} needs {needed}:"
            f" give {prefix}KAFKA_PASSWORD_FILE"
        )
