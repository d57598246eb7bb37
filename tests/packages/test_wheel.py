"""`pip install sharequeue`: the client and the command line, without any library of the services."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.packages import wheels
from tests.packages.wheels import Environment
from tests.system import test_client_page as client_page
from tests.system.test_pages import DOCS
from tests.system.test_readme import README, blocks

LIBRARIES = {"click", "httptools", "msgspec"}
PROGRAMS = Path(__file__).parent / "programs"
REFUSED, WRONG_USAGE, UNREACHABLE = 1, 2, 3
NOBODY = "http://127.0.0.1:1"
LOADED = """
import importlib, json, pkgutil, sys
of_python = set(sys.modules)  # Debian's Python has a sitecustomize
import sharequeue.cli, sharequeue.client, sharequeue.client.sync
for module in pkgutil.walk_packages(sharequeue.cli.__path__, "sharequeue.cli."):
    importlib.import_module(module.name)
loaded = {name.partition(".")[0] for name, module in sys.modules.items() if getattr(module, "__spec__", None)}
print(json.dumps(sorted(loaded - of_python - sys.stdlib_module_names)))
"""
INSTALLED = "import json; from importlib import metadata; print(json.dumps([d.name for d in metadata.distributions()]))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """What `pip install sharequeue` makes."""
    return wheels.environment(tmp_path_factory.mktemp("plain"), wheel, wheels.with_dependencies(LIBRARIES).values())


def test_wheel_without_extra_asks_for_four_libraries(wheel: Path) -> None:
    assert {requirement.name for requirement in wheels.requirements(wheel)} == LIBRARIES


def test_up_includes_server(wheel: Path) -> None:
    asked = {extra: {item.name for item in wheels.requirements(wheel, extra)} for extra in ("server", "up")}
    assert LIBRARIES < asked["server"] < asked["up"]


def test_uvloop_is_not_asked_for_on_windows(wheel: Path) -> None:
    (uvloop,) = [requirement for requirement in wheels.requirements(wheel, "server") if requirement.name == "uvloop"]
    assert uvloop.marker is not None
    assert not uvloop.marker.evaluate({"sys_platform": "win32", "extra": "server"})
    assert uvloop.marker.evaluate({"sys_platform": "darwin", "extra": "server"})


def test_plain_installation_holds_no_other_library(plain: Environment) -> None:
    installed = json.loads(plain.run("python", "-c", INSTALLED).stdout)
    assert {name.lower() for name in installed} == {"sharequeue", *wheels.with_dependencies(LIBRARIES)}


def test_client_and_command_line_load_no_library_of_the_services(plain: Environment) -> None:
    loaded = set(json.loads(plain.run("python", "-c", LOADED).stdout))
    assert loaded <= {"sharequeue", "sharequeue_http", *LIBRARIES}


def test_help_needs_no_extra(plain: Environment) -> None:
    shown = plain.run("sharequeue", "--help").stdout
    for command in ("up", "migrate", "pipeline"):
        assert re.search(rf"^  {command} ", shown, re.MULTILINE), command
        assert plain.run("sharequeue", command, "--help").stdout.startswith(f"Usage: sharequeue {command}")


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("up",), "up"),
        (("up", "--postgres-url", "postgresql://h", "--redis-url", "redis://h"), "server"),
        (("migrate", "--url", "postgresql://h"), "server"),
        (("pipeline",), "spark"),
        (("pipeline", "archive"), "spark"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_commands_name_the_extra_that_they_need(plain: Environment, command: tuple[str, ...], extra: str) -> None:
    done = plain.run("sharequeue", *command, code=REFUSED)
    name = re.escape(" ".join(word for word in command[:2] if not word.startswith("-")))
    line = rf"sharequeue {name}: \w+ is not installed: install sharequeue with its extra \[{extra}\]\n"
    assert re.fullmatch(line, done.stderr), done.stderr
    assert done.stdout == ""
    assert not (plain.bin / ".sharequeue").exists()


@pytest.mark.parametrize("command", [("up",), ("migrate", "--url", "postgresql://h")], ids=lambda command: command[0])
def test_a_missing_extra_is_json_with_json(plain: Environment, command: tuple[str, ...]) -> None:
    failure = json.loads(plain.run("sharequeue", *command, "--json", code=REFUSED).stderr)
    assert failure["code"] == "FAILED"
    assert "is not installed: install sharequeue with" in failure["detail"]


def test_other_commands_need_no_extra(plain: Environment) -> None:
    for command in (("topics", "list"), ("groups", "list"), ("produce", "t", __file__), ("consume", "t", "-g", "g")):
        assert f"cannot reach {NOBODY}" in plain.run("sharequeue", *command, "--url", NOBODY, code=UNREACHABLE).stderr
    assert "cannot reach" in plain.run("sharequeue", "healthcheck", NOBODY, code=UNREACHABLE).stderr
    assert "'up'" in plain.run("sharequeue", "upp", code=WRONG_USAGE).stderr


@pytest.fixture(scope="module")
def mypy(plain: Environment, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Checks programs against the installed wheel. Returns: the lines that mypy prints for them."""
    cache = tmp_path_factory.mktemp("mypy")
    python = ("--python-executable", str(plain.bin / "python"), "--cache-dir", str(cache))

    def mypy(*programs: str) -> list[str]:
        command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", *python, *programs]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=PROGRAMS)
        assert done.stderr == ""
        return done.stdout.splitlines()

    return mypy


def test_type_checker_passes_right_calls_and_refuses_wrong_ones(mypy: Callable[..., list[str]]) -> None:
    assert mypy("right_calls.py") == []
    lines = (PROGRAMS / "wrong_calls.py").read_text().splitlines()
    wrong = {(number, line.split("# wrong: ")[1]) for number, line in enumerate(lines, 1) if "# wrong: " in line}
    errors = [re.fullmatch(r"wrong_calls\.py:(\d+): error: .* \[([a-z-]+)\]", line) for line in mypy("wrong_calls.py")]
    assert {(int(error[1]), error[2]) for error in errors if error is not None} == wrong


def test_type_checker_passes_the_programs_of_the_page(mypy: Callable[..., list[str]], tmp_path: Path) -> None:
    files = [tmp_path / f"program_{number}.py" for number in range(6)]
    for file, program in zip(files, client_page.programs(), strict=True):
        file.write_text(program)
    assert mypy(*map(str, files)) == []


def test_type_checker_passes_each_program_of_the_other_pages(mypy: Callable[..., list[str]], tmp_path: Path) -> None:
    """Those that stand alone. The blocks of the pipeline's pages are cells of one notebook."""
    files: list[str] = []
    for page in (README, *DOCS.glob("*.md")):
        if page.stem not in ("client", "pipeline", "pipeline-recipes", "sdks"):  # sdks: `make sdks` checks it
            for number, (_, program) in enumerate(block for block in blocks(page.read_text()) if block[0] == "python"):
                file = tmp_path / f"{page.stem}_{number}.py"
                file.write_text(program)
                files.append(str(file))
    assert len(files) > 12
    assert mypy(*files) == []
