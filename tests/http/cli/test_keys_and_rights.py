"""`sharequeue keys` and `sharequeue acls`, through a gateway and in the database itself."""

import json
from pathlib import Path

import pytest

from sharequeue.protocol.access.keys import parse_key
from sharequeue.stack.stack import Stack
from tests.http.cli.conftest import REFUSED, WRONG_USAGE, Run
from tests.http.database import sql


@pytest.fixture(params=["gateway", "database"])
def place(request: pytest.FixtureRequest, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The options of the place where a command works."""
    if request.param == "gateway":
        return ()
    assert stack._postgres_url is not None
    monkeypatch.setenv("DATABASE_URL", stack._postgres_url)
    return ("--database-url",)


def listed(run: Run, principal: str) -> list[dict]:
    found: list[dict] = json.loads(run("keys", "list", "--principal", principal, "--json").stdout)["keys"]
    return found


def test_a_key_is_made_listed_rotated_and_revoked(run: Run, place: tuple[str, ...], name: str) -> None:
    principal = f"User:{name}"
    made = run("keys", "create", "--principal", principal, "--expires-in", "90d", "--description", "ovens", *place)
    key = parse_key(made.stdout.decode().strip())
    assert key is not None
    assert key.text.encode() not in made.stderr
    assert b"a gateway with authentication=off" in made.stderr
    (first,) = listed(run, principal)
    assert (first["key_id"], first["description"]) == (key.key_id, "ovens")
    assert first["expires_at_ms"] - first["created_at_ms"] == pytest.approx(90 * 86_400_000, abs=60_000)
    second = json.loads(run("keys", "rotate", key.key_id, "--overlap", "1h", *place, "--json").stdout)
    old, new = sorted(listed(run, principal), key=lambda each: each["key_id"] != key.key_id)
    assert new["key_id"] == second["key_id"]
    assert old["expires_at_ms"] < first["expires_at_ms"]
    for _ in range(2):
        assert (
            f"revoked the key {key.key_id} of {principal}" in run("keys", "revoke", key.key_id, *place).stderr.decode()
        )
    table = run("keys", "list", "--principal", principal, *place).stdout.decode()
    assert table.split()[:7] == ["KEY-ID", "PRINCIPAL", "CREATED", "EXPIRES", "REVOKED", "LAST-USED", "DESCRIPTION"]
    assert key.text not in table
    assert len(table.splitlines()) == 3


def test_keys_made_before_a_time_are_revoked(run: Run, place: tuple[str, ...], name: str) -> None:
    key_id = json.loads(run("keys", "create", "--principal", f"User:{name}", "--json").stdout)["key_id"]
    assert run("keys", "revoke", "--all-before", "2020-01-01T08:00", *place).stderr == b"revoked 0 keys\n"
    run("keys", "revoke", "--all-before", "2100-01-01T08:00", *place)
    (revoked,) = listed(run, f"User:{name}")
    assert (revoked["key_id"], "revoked_at_ms" in revoked) == (key_id, True)


def test_rights_are_added_listed_and_removed_in_kafkas_words(run: Run, place: tuple[str, ...], name: str) -> None:
    principal = f"User:{name}"
    added = run("acls", "add", "--principal", principal, "--consumer", "--topic", name, "--group", "g", *place)
    topic = f"ResourcePattern(resourceType=TOPIC, name={name}, patternType=LITERAL)"
    right = f"\t(principal={principal}, host=*, operation=READ, permissionType=ALLOW)"
    assert added.stdout.decode().splitlines() == [
        "Adding ACLs for resource `ResourcePattern(resourceType=GROUP, name=g, patternType=LITERAL)`:",
        right,
        f"Adding ACLs for resource `{topic}`:",
        right,
    ]
    produced = ("--producer", "--topic", name, "--resource-pattern-type", "prefixed")
    run("acls", "add", "--principal", principal, *produced, *place)
    found = json.loads(run("acls", "list", "--principal", principal, *place, "--json").stdout)["acls"]
    assert {(each["operation"], each["resource_type"], each["pattern_type"]) for each in found} == {
        ("READ", "GROUP", "LITERAL"),
        ("READ", "TOPIC", "LITERAL"),
        ("WRITE", "TOPIC", "PREFIXED"),
        ("CREATE", "TOPIC", "PREFIXED"),
    }
    shown = run("acls", "list", "--principal", principal, "--topic", name, "--operation", "read").stdout.decode()
    assert shown.splitlines() == [f"Current ACLs for resource `{topic}`:", right]
    removed = json.loads(run("acls", "remove", "--principal", principal, *place, "--json").stdout)["acls"]
    assert len(removed) == 4
    assert run("acls", "remove", "--principal", principal, *place).stderr == b"no right fits\n"


def test_the_cluster_is_literal_beside_names_with_a_pattern_type(run: Run, place: tuple[str, ...], name: str) -> None:
    of = ("--principal", f"User:{name}", "--cluster", "--topic", name, "--resource-pattern-type", "prefixed", *place)
    run("acls", "add", "--operation", "ALTER", *of)
    for word in ("list", "remove"):
        found = json.loads(run("acls", word, *of, "--json").stdout)["acls"]
        assert {(each["resource_type"], each["pattern_type"]) for each in found} == {
            ("CLUSTER", "LITERAL"),
            ("TOPIC", "PREFIXED"),
        }


def test_rights_that_are_removed_before_a_failure_are_named(
    run: Run, place: tuple[str, ...], stack: Stack, name: str
) -> None:
    principal, url = f"User:{name}", str(stack._postgres_url)
    of = ("--principal", principal, "--group", "g1", "--group", "g2", *place)
    run("acls", "add", "--operation", "READ", *of)
    sql(
        url,
        f"""CREATE FUNCTION groups.refuse_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
              IF OLD.principal = '{principal}' AND OLD.resource_name = 'g2' THEN RAISE 'not now'; END IF;
              RETURN OLD;
            END $$""",
    )
    sql(
        url,
        f"CREATE TRIGGER refuse_{name} BEFORE DELETE ON groups.acls FOR EACH ROW EXECUTE FUNCTION groups.refuse_{name}()",
    )
    try:
        done = run("acls", "remove", *of, code=REFUSED)
    finally:
        sql(url, f"DROP FUNCTION groups.refuse_{name} CASCADE")
    pattern = "ResourcePattern(resourceType=GROUP, name={}, patternType=LITERAL)"
    right = f"\t(principal={principal}, host=*, operation=READ, permissionType=ALLOW)"
    assert done.stdout.decode().splitlines() == [f"Removed ACLs for resource `{pattern.format('g1')}`:", right]
    assert done.stderr.startswith(b"sharequeue: ")
    left = run("acls", "list", "--principal", principal).stdout.decode().splitlines()
    assert left == [f"Current ACLs for resource `{pattern.format('g2')}`:", right]


def test_a_key_of_a_deployment_is_stored_once(
    run: Run, stack: Stack, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A container that starts again stores it again, also after it was revoked: it stays revoked."""
    assert stack._postgres_url is not None
    text = run("keys", "generate").stdout.decode().strip()
    monkeypatch.setenv("FIRST_KEY", text)
    source = ("--from-env", "FIRST_KEY", "--database-url", stack._postgres_url)
    store = ("keys", "create", "--principal", f"User:{name}", *source)
    key_id = run(*store).stdout.decode().strip()
    run("keys", "revoke", key_id)
    assert run(*store).stdout.decode().strip() == key_id == text.split("_")[1]
    (stored,) = listed(run, f"User:{name}")
    assert "revoked_at_ms" in stored
    assert b"belongs to another key" in run(*store[:3], "User:other", *store[4:], code=REFUSED).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("keys", "create", "--principal", "nobody"),
        ("keys", "create", "--principal", "User:a", "--expires-in", "soon"),
        ("keys", "create", "--principal", "User:a", "--from-env", "NONE"),
        ("keys", "revoke"),
        ("keys", "revoke", "0" * 16, "--all-before", "2026-01-01"),
        ("keys", "revoke", "--all-before", "yesterday"),
        ("acls", "add", "--principal", "User:a", "--operation", "READ"),
        ("acls", "add", "--operation", "READ", "--topic", "t"),
        ("acls", "add", "--principal", "User:a", "--operation", "FLY", "--topic", "t"),
        ("acls", "add", "--principal", "a", "--operation", "READ", "--topic", "t"),
        ("acls", "remove"),
    ],
    ids=" ".join,
)
def test_wrong_usage_changes_nothing(run: Run, arguments: tuple[str, ...]) -> None:
    said = run(*arguments, code=WRONG_USAGE).stderr
    assert b"regex" not in said
    if {"a", "nobody"} & set(arguments):
        assert b"principal must be `User:` and 1 to 200 characters" in said


def test_a_whole_key_in_place_of_its_id_is_not_repeated(run: Run) -> None:
    text = run("keys", "generate").stdout.strip()
    for arguments in (("revoke", text.decode()), ("rotate", text.decode())):
        done = run("keys", *arguments, code=WRONG_USAGE)
        assert text not in done.stdout + done.stderr


def test_what_the_service_refuses_is_refused_in_the_database_too(run: Run, place: tuple[str, ...]) -> None:
    assert b"RESOURCE_NOT_FOUND" in run("keys", "revoke", "0" * 16, *place, code=REFUSED).stderr
    add = ("acls", "add", "--principal", "User:a", "--operation", "READ")
    assert b"INVALID_TOPIC_EXCEPTION" in run(*add, "--topic", "a topic", *place, code=REFUSED).stderr


def test_a_database_that_cannot_be_used_is_one_sentence(run: Run, tmp_path: Path) -> None:
    url = "postgresql://someone:secret@127.0.0.1:1/none"
    done = run("keys", "list", "--database-url", url, code=REFUSED)
    assert done.stderr.startswith(b"sharequeue: cannot use PostgreSQL at 127.0.0.1:1 (--database-url): ")
    assert b"secret" not in done.stderr
    assert b"DATABASE_URL" in run("keys", "list", "--database-url", code=WRONG_USAGE).stderr


def test_the_first_key_goes_into_the_file_that_has_the_token_later(
    run: Run, stack: Stack, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`… --database-url > $SHAREQUEUE_TOKEN_FILE`: the shell empties the file before the command begins."""
    file = tmp_path / "admin.key"
    file.touch()
    monkeypatch.setenv("SHAREQUEUE_TOKEN_FILE", str(file))
    create = ("keys", "create", "--principal", f"User:{name}")
    assert parse_key(run(*create, "--database-url", str(stack._postgres_url)).stdout.decode().strip()) is not None
    assert b"SHAREQUEUE_TOKEN_FILE" in run(*create, code=WRONG_USAGE).stderr
