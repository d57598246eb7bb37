"""`pip install 'sharequeue[up]'`: the whole stack and nothing else; a record goes through it."""

import signal
from pathlib import Path

import pytest

from tests.packages import wheels
from tests.packages.wheels import Environment
from tests.system.up_command import Up


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What pip makes of the extra, less uvloop, which Windows has not: the services run without it."""
    wheel = wheels.build(tmp_path_factory.mktemp("wheel"))
    wanted = wheels.with_dependencies(str(item).partition(";")[0] for item in wheels.requirements(wheel, "up"))
    made = wheels.environment(tmp_path_factory.mktemp("up"), wheel, wanted.values(), "up")
    wheels.pip(made, "uninstall", "--yes", "uvloop")
    return made


def test_a_record_goes_through_the_installed_stack(installed: Environment, tmp_path: Path) -> None:
    command = str(installed.bin / "sharequeue")
    with Up(tmp_path, tmp_path / "data", command=(command,)) as up:
        url = up.ready()
        lines = tmp_path / "lines"
        lines.write_text("first\n")
        assert installed.run("sharequeue", "produce", "orders", str(lines), "--url", url).stdout.startswith("1 record ")
        consumed = installed.run("sharequeue", "consume", "orders", "-g", "billing", "--max-records", "1", "--url", url)
        assert consumed.stdout == "first\n"
        assert up.end(signal.SIGTERM) == 0
