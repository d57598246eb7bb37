"""The tour of security.md, on a stack whose callers need keys, and what such a stack keeps over its starts."""

import os
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sharequeue.stack.certificates import make_certificates
from sharequeue.stack.stack import Stack, StackError
from tests.system.test_pages import DOCS, run
from tests.system.test_readme import blocks
from tests.system.up_command import COMMAND, Up


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


def test_a_secure_stack_is_used_with_what_it_prints(tmp_path: Path) -> None:
    """Pasted, it is all that the command line needs; nobody else gets further than a handshake."""
    with Up(tmp_path, tmp_path / "data", "--secure") as up:
        url = up.ready()
        pasted = dict(each.split("=", 1) for each in up.stderr.partition("export ")[2].split("\n")[0].split())
        assert pasted["SHAREQUEUE_URL"] == url
        made = subprocess.run(
            [COMMAND, "topics", "create", "orders"],
            env=os.environ | pasted,
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.stdout.startswith("made orders"), made
        trusted = ssl.create_default_context(cafile=pasted["SHAREQUEUE_CA"])
        assert httpx.get(f"{url}/v1/topics", verify=trusted, timeout=60).status_code == 401
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{url}/livez", timeout=60)
        assert up.end(signal.SIGTERM) == 0


def test_an_authority_outlives_a_start_and_names_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_certificates(tmp_path / "tls", ["127.0.0.1", "localhost"])
    authority, made = Path(first["CA_FILE"]), Path(first["TLS_CERTIFICATE_FILE"])
    before = authority.read_bytes(), made.read_bytes()
    second = make_certificates(tmp_path / "tls", ["::1", "queue.example.org", "::1"])
    assert second == first
    assert authority.read_bytes() == before[0]
    assert made.read_bytes() != before[1]
    for name, right in (("queue.example.org", True), ("localhost", False)):
        check = ["openssl", "verify", "-x509_strict", "-verify_hostname", name, "-CAfile", authority]
        checked = subprocess.run([*check, made], capture_output=True, check=False)
        assert (checked.returncode == 0) == right, checked
    for file in (tmp_path / "tls").glob("*.key.pem"):
        assert file.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match="needs the program `openssl`, which is not on the PATH"):
        make_certificates(tmp_path / "tls", ["localhost"])
