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
