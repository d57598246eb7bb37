"""Reads docker-compose.yml as an engine would: variables filled in, merges done, the script that makes .env."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "docker-compose.yml"
SCRIPT: Final = ROOT / "docker-compose.env.sh"
SECRETS: Final = tuple(
    f"SHAREQUEUE_{name}"
    for name in (
        "CLUSTER_TOKEN",
        "POSTGRES_PASSWORD",
        "REDIS_PASSWORD",
        "GATEWAY_PASSWORD",
        "COORDINATOR_PASSWORD",
        "SHARE_COORDINATOR_PASSWORD",
        "ADMIN_KEY",
    )
)
VARIABLE: Final = re.compile(r"\$\{(?P<name>\w+)(?::(?P<operator>[?-])(?P<text>[^}]*))?\}")


class MissingVariable(Exception):
    """A variable that must be there is missing or empty; the text is the file's own message."""


def load(variables: Mapping[str, str]) -> dict[str, Any]:
    """The file with `variables` filled in; `$$` stands for a dollar sign. Raises: MissingVariable."""

    def fill(match: re.Match[str]) -> str:
        value = variables.get(match["name"], "")
        if value or match["operator"] is None:
            return value
        if match["operator"] == "?":
            raise MissingVariable(match["text"])
        return str(match["text"])

    loaded: dict[str, Any] = yaml.safe_load(VARIABLE.sub(fill, FILE.read_text()).replace("$$", "$"))
    return loaded


def make_environment_file(directory: Path) -> Path:
    """Run the script that the file names in `directory`. Returns: the .env it made."""
    subprocess.run(["sh", SCRIPT], cwd=directory, check=True)
    return directory / ".env"


def read_environment_file(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())
