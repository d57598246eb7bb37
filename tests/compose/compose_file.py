"""Reads docker-compose.yml as an engine would: variables filled in, merges done, the command that makes .env."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "docker-compose.yml"
SECRETS: Final = ("SHAREQUEUE_CLUSTER_TOKEN", "SHAREQUEUE_POSTGRES_PASSWORD", "SHAREQUEUE_REDIS_PASSWORD")
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
    """Run the command at the top of the file in `directory`. Returns: the .env it made."""
    command = next(line for line in FILE.read_text().splitlines() if line.startswith("#   (umask"))
    subprocess.run(["sh", "-c", command.removeprefix("#   ")], cwd=directory, check=True)
    return directory / ".env"


def read_environment_file(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())
