"""A number in a text is the digits 0 to 9, with a minus where allowed; Python's other forms of numbers are refused."""

from typing import Any

import click
import pytest
import sharequeue_gateway.settings as gateway
from msgspec import ValidationError

from sharequeue.cli.topics.administration import _before
from sharequeue.protocol.configs import GROUP_CONFIGS, TOPIC_CONFIGS, duration_ms, validate
from sharequeue.protocol.errors import InvalidConfig
from sharequeue.protocol.messages.topics import ListTopicsQuery
from sharequeue.service.settings import SettingsError, load
from sharequeue_http.forms.texts import convert_texts

WRITTEN_OTHERWISE = (
    "1_000_0",
    "１００００",
    "١٠٠٠٠",
    " 10000",
    "10000 ",
    "10000\n",
    "+10000",
    "1e4",
    "10000.0",
    "0x2710",
    "²",
)


@pytest.mark.parametrize("text", [*WRITTEN_OTHERWISE, "", "-", "9" * 5000])
def test_a_setting_takes_digits_alone(text: str) -> None:
    for configs, name in ((GROUP_CONFIGS, "share.heartbeat.interval.ms"), (TOPIC_CONFIGS, "retention.ms")):
        with pytest.raises(InvalidConfig, match=name) as raised:
            validate(configs, name, text, False)
        assert len(raised.value.detail) < 200


def test_a_setting_may_be_negative_and_is_stored_without_zeros_in_front() -> None:
    assert validate(TOPIC_CONFIGS, "retention.ms", "-1", False) == "-1"
    assert validate(TOPIC_CONFIGS, "retention.ms", "0010000", False) == "10000"


@pytest.mark.parametrize("text", ["P١D", "PT１H", "PT1.٥S", "PT1_0S", "PT+1S"])
def test_a_duration_takes_digits_alone(text: str) -> None:
    assert duration_ms(text) is None
    with pytest.raises(InvalidConfig):
        validate(GROUP_CONFIGS, "share.auto.offset.reset", f"by_duration:{text}", False)


@pytest.mark.parametrize("text", WRITTEN_OTHERWISE)
def test_a_query_parameter_takes_digits_alone(text: str) -> None:
    with pytest.raises(ValidationError, match=r"Expected `int`.*\$\.page_size"):
        convert_texts({"page_size": text}, ListTopicsQuery)


def test_a_text_field_may_look_like_a_number() -> None:
    query: Any = convert_texts({"page_size": "10", "page_token": "1e4"}, ListTopicsQuery)
    assert (query.page_size, query.page_token) == (10, "1e4")


@pytest.mark.parametrize("text", WRITTEN_OTHERWISE)
def test_an_environment_variable_takes_digits_alone(text: str) -> None:
    with pytest.raises(SettingsError, match=f"{gateway.PREFIX}PORT"):
        load(gateway.Settings, gateway.PREFIX, {f"{gateway.PREFIX}PORT": text})


@pytest.mark.parametrize("text", [*WRITTEN_OTHERWISE, "-1", "9" * 5000])
def test_a_partition_in_a_text_takes_digits_alone(text: str) -> None:
    with pytest.raises(click.UsageError):
        _before(f"{text}:1")
    with pytest.raises(click.UsageError):
        _before(f"0:{text}")
