"""Settings of the services: an invalid one stops the start, and the message names the variable."""

from pathlib import Path
from typing import Any

import pytest
import sharequeue_coordinator.settings as coordinator
import sharequeue_gateway.settings as gateway
import sharequeue_share_coordinator.settings as share_coordinator

from sharequeue.service.kafka_settings import kafka_settings
from sharequeue.service.settings import SettingsError, load
from sharequeue_kafka.settings import KafkaSettings

SERVICES = {"gateway": gateway, "group coordinator": coordinator, "share coordinator": share_coordinator}


def started(service: Any, **variables: str) -> Any:
    """The settings that a service starts with."""
    needed = [name for name in service.Settings.__struct_fields__ if name.endswith("_url")]
    environment = {service.PREFIX + name.upper(): "redis://x" if name == "redis_url" else "x" for name in needed}
    environment[f"{service.PREFIX}CLUSTER_TOKEN"] = "0123456789abcdef"
    given = {service.PREFIX + name.upper(): value for name, value in variables.items()}
    settings = load(service.Settings, service.PREFIX, {**environment, **given})
    settings.check(service.PREFIX)
    return settings


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES.keys())
def test_settings_are_read_from_the_environment(service: Any) -> None:
    settings = started(service, port="0", log_level="WARNING")
    assert (settings.port, settings.log_level, settings.host) == (0, "WARNING", "127.0.0.1")


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES.keys())
@pytest.mark.parametrize(
    ("name", "value"),
    [("log_level", "trace"), ("log_level", ""), ("port", "65536"), ("port", "-1")],
)
def test_an_invalid_value_is_refused_by_name(service: Any, name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{service.PREFIX}{name.upper()}[: ]"):
        started(service, **{name: value})


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES.keys())
@pytest.mark.parametrize(
    "token", ["", "x", "0123456789abcde", " 123456789abcdef", "0123456789abcde\n", "0123456789abcdeé"]
)
def test_a_short_or_unsendable_token_is_refused(service: Any, token: str) -> None:
    assert started(service, cluster_token="0123456789abcdef").cluster_token == "0123456789abcdef"
    with pytest.raises(SettingsError, match=rf"^{service.PREFIX}CLUSTER_TOKEN must .*; make one with: python3 -c"):
        started(service, cluster_token=token)


@pytest.mark.parametrize(
    ("service", "name"),
    [
        (gateway, "max_request_bytes"),
        (gateway, "retention_interval_ms"),
        (gateway, "dead_letter_retry_max_ms"),
        (gateway, "share_session_idle_ms"),
        (gateway, "max_waiting_fetches"),
        (coordinator, "initialize_retry_interval_ms"),
        (share_coordinator, "prune_interval_ms"),
        (share_coordinator, "cold_partition_snapshot_interval_ms"),
    ],
)
def test_pauses_and_limits_are_positive(service: Any, name: str) -> None:
    """A pause of zero would keep a processor busy, a limit below one would refuse everything."""
    assert getattr(started(service, **{name: "1"}), name) == 1
    for value in ("0", "-5", "1.5", "many"):
        with pytest.raises(SettingsError, match=f"^{service.PREFIX}{name.upper()}: "):
            started(service, **{name: value})


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES.keys())
def test_a_variable_that_names_no_setting_is_refused(service: Any) -> None:
    with pytest.raises(SettingsError, match=f"unknown setting {service.PREFIX}LOGLEVEL"):
        started(service, loglevel="info")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (
            "redis+sentinel://u:secret@h:26379/primary",
            "redis\\+sentinel:// is not supported: name one Redis as redis://",
        ),
        ("rediss+cluster://h", "rediss\\+cluster:// is not supported: name one Redis as redis://"),
        ("h:6379", "a URL of Redis begins with redis://, rediss:// or unix://$"),
    ],
)
def test_a_url_that_no_gateway_can_use_is_refused(url: str, reason: str) -> None:
    for fine in ("redis://h", "rediss://u:secret@h:6379/1?ssl_ca_certs=/ca.pem", "unix:///run/redis.sock"):
        assert started(gateway, redis_url=fine).redis_url == fine
    with pytest.raises(ValueError, match=f"^{gateway.PREFIX}REDIS_URL: {reason}"):
        started(gateway, redis_url=url)


def test_service_wide_settings_of_groups_that_contradict_each_other_stop_the_start() -> None:
    settings = started(coordinator, group_share_max_record_lock_duration_ms="40000")
    assert settings.service_config()["group.share.max.record.lock.duration.ms"] == 40_000
    with pytest.raises(
        SettingsError,
        match=r"^SHAREQUEUE_COORDINATOR_GROUP_SHARE_…: group\.share\.record\.lock\.duration\.ms \(30000\) must not be "
        r"above group\.share\.max\.record\.lock\.duration\.ms \(20000\)$",
    ):
        started(coordinator, group_share_max_record_lock_duration_ms="20000")
    with pytest.raises(SettingsError, match=r"^SHAREQUEUE_COORDINATOR_GROUP_SHARE_DELIVERY_COUNT_LIMIT: "):
        started(coordinator, group_share_delivery_count_limit="many")


def test_callers_without_keys_are_let_in_from_a_network_only_by_name() -> None:
    assert started(gateway, host="127.0.0.1").authentication == "off"
    for mode in ("off", "optional"):
        with pytest.raises(ValueError, match=r"HOST=10\.0\.0\.1 is a public address.*_AUTHENTICATION=required"):
            started(gateway, host="10.0.0.1", authentication=mode)
        started(gateway, host="10.0.0.1", authentication=mode, allow_anonymous_from_network="true")
    started(gateway, host="10.0.0.1", authentication="required")
    for service in (coordinator, share_coordinator):
        started(service, host="10.0.0.1")  # every call but those of operations needs the cluster token


def test_super_users_are_principals() -> None:
    assert gateway.principals_of(started(gateway, super_users="User:a, User:b").super_users) == ["User:a", "User:b"]
    with pytest.raises(ValueError, match=f"^{gateway.PREFIX}SUPER_USERS: 'admin' is not a principal"):
        started(gateway, super_users="User:a,admin")


SECRET = "s3cret-s3cret-s3cret"


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES.keys())
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_setting_may_come_from_a_file(service: Any, end: str, tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_bytes(f"postgresql://{SECRET}{end}".encode())
    environment = {
        f"{service.PREFIX}{name.upper()}": "x" for name in service.Settings.__struct_fields__ if "url" in name
    }
    del environment[f"{service.PREFIX}DATABASE_URL"]
    environment |= {f"{service.PREFIX}CLUSTER_TOKEN": SECRET, f"{service.PREFIX}DATABASE_URL_FILE": str(file)}
    assert load(service.Settings, service.PREFIX, environment).database_url == f"postgresql://{SECRET}"


def test_a_setting_and_its_file_are_not_both_taken(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET)
    variables = r"SHAREQUEUE_GATEWAY_CLUSTER_TOKEN and SHAREQUEUE_GATEWAY_CLUSTER_TOKEN_FILE"
    with pytest.raises(SettingsError, match=f"^{variables} are both given: give one$"):
        started(gateway, cluster_token_file=str(tmp_path / "token"))


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(SECRET.encode() + b"\xff")
    for file, why in ("none", "cannot be read: No such file"), ("bytes", "is not UTF-8"), ("", "cannot be read: Is a"):
        with pytest.raises(SettingsError, match=rf"^SHAREQUEUE_GATEWAY_NODE_ID_FILE: .* {why}") as refused:
            started(gateway, node_id_file=str(tmp_path / file))
        assert SECRET not in str(refused.value)


def test_a_file_for_no_setting_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^unknown setting SHAREQUEUE_GATEWAY_NOTHING_FILE;"):
        started(gateway, nothing_file=str(tmp_path))


def test_a_wrong_value_is_refused_with_what_is_right() -> None:
    wrong = {
        "authentication": ("maybe", "must be one of `off`, `optional`, `required`"),
        "port": ("70000", "must be from 0 to 65535"),
        "allow_anonymous_from_network": ("perhaps", "must be true or false"),
    }
    for name, (value, words) in wrong.items():
        with pytest.raises(SettingsError, match=f"^SHAREQUEUE_GATEWAY_{name.upper()}: {words}$"):
            started(gateway, **{name: value})


def test_a_misspelt_variable_is_answered_with_the_one_that_is_meant() -> None:
    with pytest.raises(SettingsError, match=r"GATEWAY_POTR; did you mean SHAREQUEUE_GATEWAY_PORT\? docs/"):
        started(gateway, potr="1")


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(SettingsError, match="TLS_CERTIFICATE_FILE and TLS_KEY_FILE"):
        started(gateway, tls_certificate_file="certificate.pem")


RECORD_LOGS: dict[str, Any] = {"gateway": gateway, "group coordinator": coordinator}


@pytest.mark.parametrize("service", RECORD_LOGS.values(), ids=RECORD_LOGS.keys())
def test_a_record_log_on_kafka_names_its_brokers_and_what_sasl_needs(service: Any) -> None:
    kafka = {"record_log": "kafka", "kafka_bootstrap_servers": "127.0.0.1:9092"}
    assert kafka_settings(started(service)) is None
    assert kafka_settings(started(service, **kafka)) == KafkaSettings("127.0.0.1:9092")
    for half in ({"record_log": "kafka"}, {"kafka_bootstrap_servers": "127.0.0.1:9092"}):
        with pytest.raises(SettingsError, match=f"{service.PREFIX}KAFKA_BOOTSTRAP_SERVERS, or neither"):
            started(service, **half)
    sasl = {**kafka, "kafka_security_protocol": "SASL_SSL"}
    with pytest.raises(SettingsError, match=f"needs {service.PREFIX}KAFKA_USER and a password"):
        started(service, **sasl, kafka_password="x")
    with pytest.raises(SettingsError, match="needs a token"):
        started(service, **sasl, kafka_sasl_mechanism="OAUTHBEARER")
    started(service, **sasl, kafka_sasl_mechanism="SCRAM-SHA-512", kafka_user="u", kafka_password_file="/run/secret")
