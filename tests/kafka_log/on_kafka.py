"""Runs the tests of the HTTP contract with Kafka as the record log: `KAFKA_LOG=1 pytest tests/http/…`.

A test that needs a capability which Kafka's log lacks is skipped where a call answers 501 with its name. `lacking.txt`
lists these tests, each with the capability: a run whose modules skip others fails.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from sharequeue_http.forms.errors import ApiError
from tests.kafka_log.brokers import Brokers

ON_KAFKA: Final = "KAFKA_LOG" in os.environ
LACKING: Final = Path(__file__).parent / "lacking.txt"
_skipped: dict[str, str] = {}


@pytest.fixture(scope="session")
def record_log_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The options of a stack that say where its records are."""
    if not ON_KAFKA:
        yield {}
        return
    brokers = Brokers(tmp_path_factory.mktemp("kafka-log"))
    yield {"kafka": brokers.address}
    brokers.close()


def skip_if_lacking(response: httpx.Response) -> None:
    """Skip the test that made a call which needs a capability that the log lacks."""
    if response.status_code == 501:
        response.read()
        _skip(response.json().get("capability"))


def _skip(capability: str | None) -> None:
    if capability is not None:
        pytest.skip(f"the log lacks {capability}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Skip a test whose client got such an answer."""
    try:
        return (yield)
    except ApiError as error:
        if error.status == 501 and error.problem is not None:
            _skip(error.problem.capability)
        raise


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple) and "the log lacks " in report.longrepr[2]:
        _skipped[report.nodeid] = report.longrepr[2].rpartition(" ")[2]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a whole run that skipped other tests than the list says."""
    if not ON_KAFKA or hasattr(session.config, "workerinput") or session.testsfailed:
        return
    lines = [line.split() for line in LACKING.read_text().splitlines()]
    modules = {item.nodeid.partition("::")[0] for item in session.items}
    expected = {test: capability for test, capability in lines if test.partition("::")[0] in modules}
    if expected != _skipped and not session.config.option.keyword:
        different = sorted({*expected.items()} ^ {*_skipped.items()})
        print("\nskipped on Kafka, or in the list alone:", *(" ".join(each) for each in different), sep="\n")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
