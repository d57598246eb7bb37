"""The command line for administrators of groups (CL): its output, its refusals, its changes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from sharequeue.cli import main
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, wait_until

REFUSED, WRONG_USAGE, UNREACHABLE = 1, 2, 3
Run = Callable[..., str]


@pytest.fixture
def run(shared_stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `sharequeue groups …`; `code` is the exit code it must have. Returns: stdout, then stderr."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, code: int = 0) -> str:
        done = CliRunner(env={"SHAREQUEUE_URL": shared_stack.url}).invoke(main, ("groups", *arguments))
        assert done.exit_code == code, (arguments, done.stdout, done.stderr)
        return done.stdout + done.stderr

    return run


def rows(text: str) -> list[list[str]]:
    """The cells of tables as awk sees them, without their heads, and without what stderr says."""
    others = ("GROUP ", "TOPIC ", "sharequeue: ", "Share group ")
    return [line.split() for line in text.splitlines() if not line.startswith(others)]


def join(gateway: Gateway, group: str, member: str, topic: str, epoch: int = 0) -> int:
    body = {"member_id": member, "member_epoch": epoch}
    if epoch == 0:
        body["subscribed_topic_names"] = [topic]
    path = f"/v1/share-groups/{group}/heartbeat"
    answer = good(gateway.http.post(path, json=body, headers={"Client-Id": "tester"}))
    return int(answer["member_epoch"])


def stand(gateway: Gateway, name: str) -> None:
    """A group of that name that accepted 4 of the 10 records of a topic of that name."""
    gateway.produce_batches(name, 10)
    gateway.acquire(name, name, max_records=4)
    gateway.settle(name, name, 0, 3, "accept")


def test_cl_001_groups_list_shows_groups_by_state(gateway: Gateway, run: Run, name: str) -> None:
    stable, empty = f"{name}-stable", f"{name}-empty"
    join(gateway, stable, "m1", name)
    stand(gateway, empty)
    assert {stable, empty} <= set(run("list").splitlines())
    assert "is paused" in run("pause", stable)
    assert [stable, "Stable", "yes"] in rows(run("list", "--state"))
    assert json.loads(run("resume", stable, "--json"))["share.paused"] == "false"
    states = rows(run("list", "--state", "stable"))
    assert [stable, "Stable", "-"] in states
    assert all(state == "Stable" for _, state, _ in states)
    assert run("list", "--state", "Dead").count("Stable") == 0
    assert "Bogus" in run("list", "--state", "Bogus", code=WRONG_USAGE)
    listed = json.loads(run("list", "--json"))["groups"]
    assert {"group_id": stable, "type": "share", "state": "Stable"} in listed


def test_cl_003_describe_shows_offsets(gateway: Gateway, run: Run, name: str) -> None:
    join(gateway, name, "m1", f"{name}-none")
    assert f"Share group '{name}' has no offset information." in run("describe", name, "--offsets")
    group = f"{name}-2"
    stand(gateway, group)
    gateway.reset(group, "current", force=True)
    assert rows(run("describe", group, "--offsets")) == [[group, group, "0", "4", "6"]]
    ((*_, epoch, start, lag),) = rows(run("describe", group, "--offsets", "--verbose"))
    assert (epoch.isdigit(), start, lag) == (True, "4", "6")
    assert json.loads(run("describe", group, "--offsets", "--json"))["topics"][0]["partitions"][0]["lag"] == 6
    both = run("describe", f"{name}-no", group, "--offsets", code=REFUSED)
    assert "GROUP_ID_NOT_FOUND" in both
    assert rows(both) == [[group, group, "0", "4", "6"]]
    assert [group, group, "0", "4", "6"] in rows(run("describe", "--all-groups", "--offsets"))
    run("describe", code=WRONG_USAGE)
    run("describe", group, "--members", "--state", code=WRONG_USAGE)
    run("describe", group, "--all-groups", code=WRONG_USAGE)


def test_a_group_whose_workers_only_hold_records_does_not_look_dead(gateway: Gateway, run: Run, name: str) -> None:
    """A caller without a member id is not counted as active, like a worker whose last call is a minute ago."""
    gateway.produce_batches(name, 3)
    body = {"topics": [name], "max_records": 2, "lock_duration_ms": 600_000}
    good(gateway.http.post(f"/v1/share-groups/{name}/fetch", json=body))
    described = run("describe", name)
    assert f"Share group '{name}' has no active members." in described
    for (line,) in (rows(described), [each for each in rows(run("describe", "--all-groups")) if each[0] == name]):
        assert (line[:4], line[5:]) == ([name, "Empty", "-", "1"], ["2", "0", "0", "0", "0"])
        assert line[4].endswith("s")


def test_describe_names_the_workers_with_their_hosts(gateway: Gateway, run: Run, name: str) -> None:
    stand(gateway, name)
    run("pause", name)
    described = rows(run("describe", name))
    assert (described[0][:3], described[0][5:]) == ([name, "Empty", "yes"], ["0", "0", "0", "0", "1"])
    assert described[1][:3] == [name, "m1", "127.0.0.1"]
    whole = json.loads(run("describe", name, "--json"))
    assert (whole["work"]["ready"], whole["workers"][0]["member_id"], whole["paused"]) == (6, "m1", True)
    groups = json.loads(run("describe", "--all-groups", "--json"))["groups"]
    assert [group["work"]["ready"] for group in groups if group["group_id"] == name] == [6]


LATEST = ("--to-latest", "--execute")
SCENARIOS = {
    "--to-earliest": "0",
    "--to-latest": "10",
    "--to-current": "4",
    "--to-offset=7": "7",
    "--to-offset=70": "10",
    "--to-datetime=2001-01-01T00:00:00.000": "0",
    "--to-datetime=2101-01-01": "10",
}


def test_cl_005_dry_runs_show_and_change_nothing(gateway: Gateway, run: Run, name: str) -> None:
    stand(gateway, name)
    for scenario, offset in SCENARIOS.items():
        shown = run("reset-offsets", name, "--topic", name, scenario, "--dry-run")
        assert rows(shown) == [[name, name, "0", offset]], scenario
    assert gateway.window(name, name)[0] == 4


def test_cl_007_ambiguous_resets_are_refused(run: Run, name: str) -> None:
    for arguments in (
        ("--to-latest", "--dry-run"),
        ("--topic", "t", "--to-latest"),
        ("--topic", "t", "--to-latest", "--dry-run", "--execute"),
        ("--topic", "t", "--dry-run"),
        ("--topic", "t", "--to-latest", "--to-earliest", "--dry-run"),
        ("--topic", "t", "--all-topics", "--to-latest", "--dry-run"),
        ("--topic", "t:x", "--to-latest", "--dry-run"),
        ("--topic", "t", "--to-datetime", "soon", "--dry-run"),
    ):
        run("reset-offsets", name, *arguments, code=WRONG_USAGE)


def test_cl_009_resets_are_executed_exported_and_taken_back(
    gateway: Gateway, run: Run, name: str, tmp_path: Path
) -> None:
    gateway.create_topic(name, partitions=3)
    for partition in range(3):
        gateway.produce_batches(name, 5, partition=partition)
    assert rows(run("reset-offsets", name, "--topic", f"{name}:0,2", "--to-offset", "2", "--execute")) == [
        [name, name, "0", "2"],
        [name, name, "2", "2"],
    ]
    assert gateway.offsets(name) == {(name, 0): (2, 3), (name, 2): (2, 3)}
    exported = run("reset-offsets", name, "--all-topics", "--to-current", "--dry-run", "--export")
    assert exported == f'"{name}",0,2\n"{name}",2,2\n'
    file = tmp_path / "offsets.csv"
    file.write_text(exported, encoding="utf-8-sig")  # as Excel does: the mark of the file is no part of it
    run("reset-offsets", name, "--all-topics", "--to-latest", "--execute")
    assert gateway.offsets(name) == {(name, 0): (5, 0), (name, 2): (5, 0)}
    run("reset-offsets", name, "--from-file", str(file), "--execute")
    assert gateway.offsets(name) == {(name, 0): (2, 3), (name, 2): (2, 3)}
    for content in (b"one,two\n", b"", b"\xff\xfe\x00", b'"' + 200_000 * b"x"):
        file.write_bytes(content)
        assert str(file) in run("reset-offsets", name, "--from-file", str(file), "--execute", code=WRONG_USAGE)
    output = run("reset-offsets", name, "--topic", f"{name}:0,9", "--to-latest", "--execute", code=REFUSED)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in output
    assert rows(output) == [[name, name, "0", "5"]]
    assert "GROUP_ID_NOT_FOUND" in run("reset-offsets", f"{name}-no", "--all-topics", *LATEST, code=REFUSED)
    join(gateway, f"{name}-2", "m1", f"{name}-none")
    gateway.http.delete(f"/v1/share-groups/{name}-2/members/m1")
    assert "has no offset information" in run("reset-offsets", f"{name}-2", "--all-topics", *LATEST)


def test_cl_011_delete_offsets_forgets_a_topic(gateway: Gateway, run: Run, name: str) -> None:
    topics = [f"{name}-a", f"{name}-b"]
    for topic in topics:
        gateway.create_topic(topic)
        gateway.acquire(name, topic)
    done = run("delete-offsets", name, "--topic", topics[0], "--topic", topics[1])
    assert rows(done) == [[topic, "Successful"] for topic in topics]
    again = run("delete-offsets", name, "--topic", topics[0], code=REFUSED)
    assert "Error: There is no offset information to delete." in again
    run("delete-offsets", name, code=WRONG_USAGE)
    run("delete-offsets", name, name, "--topic", topics[0], code=WRONG_USAGE)
    gateway.acquire(name, topics[0])
    output, problem = run(
        "delete-offsets", name, "--topic", topics[0], "--topic", f"{name}-no", "--force", "--json", code=REFUSED
    ).splitlines()
    assert json.loads(output) == {"deleted": [topics[0]]}
    assert json.loads(problem)["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
    nowhere = run("delete-offsets", name, "--topic", topics[0], "--url", "http://127.0.0.1:1", code=UNREACHABLE)
    assert "Error: cannot reach http://127.0.0.1:1" in nowhere


def test_dead_letters_are_listed_shown_redriven_and_dropped_one_by_one(
    gateway: Gateway, run: Run, name: str, shared_stack: Stack
) -> None:
    def letters(*arguments: str, code: int = 0) -> str:
        done = CliRunner(env={"SHAREQUEUE_URL": shared_stack.url}).invoke(main, ("dead-letters", *arguments))
        assert done.exit_code == code, (arguments, done.stdout, done.stderr)
        return done.stdout + done.stderr

    gateway.produce_batches(name, 4)
    gateway.acquire(name, name)
    gateway.settle(name, name, 0, 2, "reject", reason="bad")
    wait_until(lambda: len(json.loads(letters("list", name, "--json"))["dead_letters"]) == 3)
    assert [line.split()[:4] for line in letters("list", name).splitlines()[1:]] == [
        [name, "0", offset, "open"] for offset in "012"
    ]
    for offset in ("0", "2"):
        some = ("--topic", name, "--offset", offset)
        assert letters("redrive", name, *some) == f"1 dead letters of {name} are redriven\n"
    assert letters("drop", name, "--dry-run") == f"1 dead letters of {name} would be dropped\n"
    assert "--yes" in letters("drop", name, code=WRONG_USAGE)
    assert letters("drop", name, "--yes", "--reason", "bad") == f"1 dead letters of {name} are dropped\n"
    assert run("redrive", name, "--dry-run") == f"0 dead letters of {name} would be redriven\n"
    assert json.loads(letters("show", name, name, "2"))["redriven_to"]["offset"] == 5
    dropped = json.loads(letters("show", name, name, "1"))
    assert (dropped["state"], dropped["reason"], dropped["value"]) == ("dropped", "bad", 1)
    assert "is not a dead letter" in letters("show", name, name, "3", code=REFUSED)
    assert "--topic" in letters("drop", name, "--offset", "1", "--yes", code=WRONG_USAGE)
    assert "holds the dead letters" in letters("redrive", name, "--topic", f"dlq.{name}", code=REFUSED)
