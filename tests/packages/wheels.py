"""The project's wheel, and environments that hold it with what it asks for and nothing else.

pip installs from a folder that holds the wheels of the libraries which a test allows: made of those that are installed
here, so a test needs no network. What the wheel asks for besides makes pip fail.
"""

import subprocess
import sys
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
OURS = "sharequeue"


class Environment(NamedTuple):
    """A virtual environment. `bin`: where its programs are."""

    bin: Path

    def run(self, program: str, *arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        """Run one of its programs to its end; `code` is the exit code it must have."""
        command = [str(self.bin / program), *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.bin, timeout=300)
        assert done.returncode == code, (command, done.returncode, done.stdout, done.stderr)
        return done


def build(folder: Path) -> Path:
    """Build the project's wheel, as `pip wheel` does for a user, but with the hatchling that is installed here."""
    command = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*command, str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob(f"{OURS}-*.whl")
    return wheel


def requirements(wheel: Path, extra: str = "") -> list[Requirement]:
    """What a wheel asks for, on this system, with an extra or without."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        path = zipfile.Path(opened, name)
        asked = metadata.PathDistribution(path.parent).requires or []  # type: ignore[arg-type]  # as importlib does
    return [requirement for requirement in map(Requirement, asked) if _wanted(requirement, extra)]


def _wanted(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def with_dependencies(names: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Installed libraries and all that they ask for, by name."""
    found: dict[str, metadata.Distribution] = {}
    left = [Requirement(name) for name in names]
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        extras = wanted.extras or {""}
        if name in found and extras == {""}:
            continue
        found[name] = metadata.distribution(name)
        asked = [Requirement(text) for text in found[name].requires or ()]
        left += [inner for inner in asked if any(_wanted(inner, extra) for extra in extras)]
    return found


def wheel_of(distribution: metadata.Distribution, folder: Path) -> None:
    """Make a wheel of an installed library. Programs of it are left out."""
    name = canonicalize_name(distribution.name).replace("-", "_")
    with zipfile.ZipFile(folder / f"{name}-{distribution.version}-py3-none-any.whl", "w") as wheel:
        for file in distribution.files or ():
            if ".." not in file.parts and file.suffix != ".pyc" and Path(file.locate()).is_file():
                wheel.write(str(file.locate()), file.as_posix())


def index(folder: Path, allowed: Iterable[metadata.Distribution]) -> Path:
    """A folder of wheels, of the libraries that are given."""
    made = folder / "index"
    made.mkdir()
    for distribution in allowed:
        wheel_of(distribution, made)
    return made


def environment(folder: Path, wheel: Path, allowed: Iterable[metadata.Distribution], extra: str = "") -> Environment:
    """A new environment with the wheel and its extra. `allowed`: the only libraries that pip finds."""
    libraries = index(folder, allowed)
    place = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    made = Environment(place / "bin")
    asked = f"{OURS}[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    pip(made, "install", "--no-compile", "--no-index", "--find-links", str(libraries), asked)
    return made


def pip(environment: Environment, *arguments: str) -> None:
    """Run the pip that is installed here on an environment, without the settings of this machine."""
    options = ["--isolated", "--quiet", "--disable-pip-version-check", "--python", str(environment.bin / "python")]
    subprocess.run([sys.executable, "-m", "pip", *options, *arguments], check=True)
