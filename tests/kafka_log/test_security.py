"""TLS and SASL on a real broker: each way to say who calls, and what a wrong one is told."""

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from sharequeue_kafka.cluster import KafkaCluster
from sharequeue_kafka.errors import KafkaError
from sharequeue_kafka.settings import KafkaSettings
from tests.certificates import Authority
from tests.kafka_log.brokers import Brokers

SECURITY = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Brokers, Path]]:
    """A broker with TLS and three mechanisms, and the file of its authority."""
    home = tmp_path_factory.mktemp("secured")
    authority = Authority(home / "certificates")
    certificate, key = authority.pair("broker", "127.0.0.1")
    stored = load_pem_private_key(key.read_bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    keystore = home / "broker.pem"
    keystore.write_bytes(stored + certificate.read_bytes())
    of = "listener.name.sasl_ssl"
    plain = f"{SECURITY}.plain.PlainLoginModule required"
    users = 'username="broker" password="of-broker" user_broker="of-broker" user_app="of-app"'
    bearer = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required"
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{of}.plain.sasl.jaas.config": f"{plain} {users};",
        f"{of}.scram-sha-512.sasl.jaas.config": f"{SECURITY}.scram.ScramLoginModule required;",
        f"{of}.oauthbearer.sasl.jaas.config": f'{bearer} unsecuredLoginStringClaim_sub="broker";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
    }
    scram = "SCRAM-SHA-512=[name=app,password=of-app]"
    brokers = Brokers(home / "broker", settings=settings, protocol="SASL_SSL", scram=scram)
    yield brokers, authority.file
    brokers.close()


def token() -> str:
    """A token without a signature, which a broker without a key takes."""
    claims = {"sub": "app", "iat": time.time(), "exp": time.time() + 600}
    parts = (
        base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in ({"alg": "none"}, claims)
    )
    return ".".join((*parts, ""))


def test_each_mechanism_over_tls(secured: tuple[Brokers, Path], tmp_path: Path) -> None:
    brokers, authority = secured
    secret = tmp_path / "secret"

    async def look(mechanism: str, password: str, ca_file: str = str(authority), call_timeout_ms: int = 60_000) -> int:
        secret.write_text(f"{password}\n")
        cluster = KafkaCluster(
            KafkaSettings(
                brokers.address,
                security_protocol="SASL_SSL",
                ca_file=ca_file,
                sasl_mechanism=mechanism,  # type: ignore[arg-type]
                user="app",
                password_file=str(secret),
                call_timeout_ms=call_timeout_ms,
            )
        )
        try:
            await cluster.start()
            return len(await cluster.topics())
        finally:
            await cluster.close()

    async def play() -> None:
        for mechanism, password in (("PLAIN", "of-app"), ("SCRAM-SHA-512", "of-app"), ("OAUTHBEARER", token())):
            assert await look(mechanism, password) == 0
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            with pytest.raises(KafkaError, match=r"(?i)authentication|credentials"):
                await look(mechanism, "wrong", call_timeout_ms=2_000)
        with pytest.raises(KafkaError, match="certificate"):
            await look("PLAIN", "of-app", "", call_timeout_ms=2_000)

    asyncio.run(play())
