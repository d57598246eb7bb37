"""`--all-groups` of `groups reset-offsets` and `groups delete-offsets`: each group, and why one failed."""

from tests.http.calls import Gateway
from tests.http.cli.conftest import REFUSED, WRONG_USAGE, Run


def test_all_groups_are_reset_and_forgotten_and_those_that_fail_are_named(
    own_gateway: Gateway, run: Run, name: str
) -> None:
    own_gateway.produce_batches(name, 10)
    busy, first, second = groups = [f"{name}-{one}" for one in ("busy", "first", "second")]
    for group in groups:
        own_gateway.acquire(group, name, max_records=4)
        own_gateway.settle(group, name, 0, 3, "accept")
    own_gateway.acquire(busy, name, max_records=1, lock_duration_ms=3_600_000)
    to = ("--topic", name, "--to-offset", "8", "--execute")
    done = run("groups", "reset-offsets", "--all-groups", *to, code=REFUSED)
    rows = [line.split() for line in done.stdout.decode().splitlines() if not line.startswith("GROUP")]
    assert rows == [[group, name, "0", "8"] for group in (first, second)]
    said = done.stderr.decode().splitlines()
    assert [line for line in said if line.startswith("group ")] == [f"group {group}" for group in groups]
    reasons = [line for line in said if not line.startswith("group ")]
    assert reasons[0].startswith(
        f"sharequeue: group '{busy}' failed: NON_EMPTY_GROUP: group '{busy}' is in use (records"
    )
    assert reasons[1:] == ["sharequeue: 1 of 3 groups failed"]
    assert own_gateway.offsets(first) == own_gateway.offsets(second) == {(name, 0): (8, 2)}
    done = run("groups", "delete-offsets", "--all-groups", "--topic", name, code=REFUSED)
    rows = [line.split() for line in done.stdout.decode().splitlines() if not line.startswith("TOPIC")]
    assert [row[:2] for row in rows] == [[name, "Error:"], [name, "Successful"], [name, "Successful"]]
    reasons = [line for line in done.stderr.decode().splitlines() if not line.startswith("group ")]
    assert reasons == [
        f"sharequeue: group '{busy}' failed: its lines above say why",
        "sharequeue: 1 of 3 groups failed",
    ]
    assert own_gateway.offsets(first) == own_gateway.offsets(second) == {}
    run("groups", "reset-offsets", "--all-groups", "--force", *to)
    assert own_gateway.offsets(busy) == {(name, 0): (8, 2)}


def test_one_group_or_all_of_them_are_to_be_named(own_gateway: Gateway, run: Run, name: str) -> None:
    for arguments in ((), (name, "--all-groups"), ("--all-groups", "--json")):
        run("groups", "delete-offsets", *arguments, "--topic", name, code=WRONG_USAGE)
        run("groups", "reset-offsets", *arguments, "--topic", name, "--to-latest", "--execute", code=WRONG_USAGE)
