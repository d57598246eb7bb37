"""The commands of docs/production.md that install the services, from the wheel and an index of its libraries."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packages import wheels
from tests.packages.wheels import Environment
from tests.system.test_pages import DOCS
from tests.system.test_readme import blocks

SHOWN = "/opt/sharequeue"
SHOWN_PATH = "/path/to/sharequeue"


@pytest.mark.soak
def test_the_commands_of_the_page_install_the_three_services(tmp_path: Path) -> None:
    wheel = wheels.build(tmp_path)
    wanted = wheels.with_dependencies(str(item).partition(";")[0] for item in wheels.requirements(wheel, "server"))
    libraries = wheels.index(tmp_path, wanted.values())
    (commands,) = [content for kind, content in blocks((DOCS / "production.md").read_text()) if kind == "install"]
    assert commands.count(SHOWN) == 2
    assert commands.count(SHOWN_PATH) == 1
    settings = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(libraries),
        "PIP_CONFIG_FILE": os.devnull,
    }
    subprocess.run(
        ["bash", "-ec", commands.replace(SHOWN_PATH, str(wheel)).replace(SHOWN, str(tmp_path / "opt"))],
        env={**os.environ, **settings},
        check=True,
        timeout=600,
    )
    made = Environment(tmp_path / "opt" / "bin")
    assert made.run("sharequeue", "migrate", "--help").stdout.startswith("Usage: sharequeue migrate")
    for service in ("share_coordinator", "coordinator", "gateway"):
        refused = made.run("python", "-m", f"sharequeue_{service}", code=2).stderr
        assert refused.endswith(": is missing\n"), "it starts, and asks for its settings"
