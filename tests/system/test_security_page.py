"""The tour of security.md, on a stack whose callers need keys, and what such a stack keeps over its starts."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sharequeue.stack.stack import Stack, StackError
from tests.system.test_pages import DOCS, run
from tests.system.test_readme import blocks


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack(tmp_path, one_process=True, require_keys=True, temporary=True)
    made.start()
    yield made
    made.stop()


def test_the_tour_shows_what_a_key_may_do(stack: Stack, tmp_path: Path) -> None:
    """Another topic than those of the tour is there, so that a list could show too much."""
    ((_, tour),) = [block for block in blocks((DOCS / "security.md").read_text()) if block[0] == "sh"]
    before, after = (line + "\n" for line in tour.split("sharequeue topics create orders\n"))
    tour = f"{before}sharequeue topics create orders; sharequeue topics create secrets\n{after}"
    printed = run(stack, tour.replace(".sharequeue/admin.key", str(tmp_path / "admin.key")))
    assert '"code":"SASL_AUTHENTICATION_FAILED"' in printed
    assert '{"topics":[{"name":"orders"' in printed
    assert "secrets" not in printed.partition('{"topics"')[2]
    assert '"code":"TOPIC_AUTHORIZATION_FAILED"' in printed
    table = printed[printed.index("KEY-ID") :].splitlines()
    assert {line.split()[1] for line in table[1:]} == {"User:admin", "User:billing"}


def test_the_first_key_outlives_a_start_and_holds_alone(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "admin.key"
    assert file.stat().st_mode & 0o777 == 0o600
    key = file.read_text()
    again = {"Authorization": f"Bearer {key}"}
    assert httpx.get(f"{stack.url}/v1/keys", headers=again, timeout=60).status_code == 200
    assert httpx.get(f"{stack.url}/v1/topics", timeout=60).status_code == 401
    stack.stop()
    once_more = Stack(tmp_path, one_process=True, require_keys=True, temporary=True)
    once_more.start()
    try:
        keys = httpx.get(f"{once_more.url}/v1/keys", headers=again, timeout=60).json()["keys"]
        assert [each["principal"] for each in keys] == ["User:admin"]
    finally:
        once_more.stop()


def test_a_file_without_a_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "admin.key").write_text("not a key")
    with pytest.raises(StackError, match=r"admin\.key has no key: remove it"):
        Stack(tmp_path, one_process=True, require_keys=True, temporary=True).start()
