"""Programs of Debian's packages, for tests that need more than Python."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.compose.engine import EngineError


def programs(package: str, names: tuple[str, ...], home: Path) -> Path:
    """The folder with the programs `names`: of PATH, or of Debian's package, unpacked below `home`, not installed.

    Raises: EngineError: there is neither.
    """
    for folder in (*map(Path, os.get_exec_path()), Path("/usr/sbin")):
        if all(shutil.which(name, path=folder) for name in names):
            return folder
    if shutil.which("apt-get") is None:
        raise EngineError(f"put {' and '.join(names)} into PATH: this machine has no apt-get to fetch Debian's package")
    for command in (("download", package), ("update",), ("download", package)):
        done = subprocess.run(["apt-get", "--quiet", *command], cwd=home, capture_output=True, text=True, check=False)
        for archive in home.glob(f"{package}_*.deb"):
            unpacked = home / f"{package}.debian"
            subprocess.run(["dpkg-deb", "--extract", archive, unpacked], check=True)
            return next((unpacked / "usr").glob(f"*bin/{names[0]}")).parent
    raise EngineError(f"apt-get download {package} failed:\n{done.stdout}{done.stderr}")


def with_libraries(name: str, packages: tuple[str, ...], home: Path) -> tuple[Path, dict[str, str]]:
    """The program `name` of PATH, or of Debian's packages, unpacked below `home`; and its environment.

    Args:
        packages: the package of the program, then the packages of its libraries.
    Raises: EngineError: there is neither.
    """
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is not None:
        return Path(found), dict(os.environ)
    folder = programs(packages[0], (name,), home)
    unpacked = home / f"{name}.debian"
    for package in packages[1:]:
        done = subprocess.run(["apt-get", "--quiet", "download", package], cwd=home, capture_output=True, check=False)
        for archive in home.glob(f"{package}_*.deb"):
            subprocess.run(["dpkg-deb", "--extract", archive, unpacked], check=True)
            break
        else:
            raise EngineError(f"apt-get download {package} failed:\n{done.stderr.decode()}")
    libraries = sorted({str(library.parent) for library in unpacked.glob("usr/lib/**/*.so.*")})
    return folder / name, {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}
