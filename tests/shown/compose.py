"""Commands of Docker, parsed against docker-compose.yml: `make compose-test` runs them on a real engine.

Each command and option that a page shows must be one that tests/compose runs, too (`RUN`); the services, volumes and
variables that it names must be in the file.
"""

import re
import shlex
from typing import Any, Final

import yaml

from tests.compose.compose_file import FILE, SECRETS, VARIABLE
from tests.shown import Wrong

RUN: Final = {
    "up": {"--build", "--detach", "--wait", "--scale"},
    "down": {"--volumes"},
}
"""The commands of compose and their options that tests/compose/__main__.py runs: a test compares."""
SERVICES: Final[dict[str, Any]] = yaml.safe_load(FILE.read_text())["services"]
VARIABLES: Final = {found["name"] for found in VARIABLE.finditer(FILE.read_text())}


def check_docker(code: str) -> None:
    """`NAME=VALUE docker compose up --scale gateway=3`, or an option of it alone. Raises: Wrong."""
    words = shlex.split(code)
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        if name not in VARIABLES:
            raise Wrong(f"docker-compose.yml takes no {name}")
        if name in SECRETS:
            raise Wrong(f"{name}={value} shows a secret")
    options = {option for command in RUN.values() for option in command}
    if words[:2] == ["docker", "compose"]:
        if words[2] not in RUN:
            raise Wrong(f"make compose-test runs no docker compose {words[2]}")
        options = RUN[words[2]]
        words = words[3:]
    for place, word in enumerate(words):
        if word.startswith("--"):
            if word not in options:
                raise Wrong(f"make compose-test uses no {word}")
        elif words[place - 1] == "--scale":
            _check_scale(word)
        else:
            raise Wrong(f"{word} is no option")


def _check_scale(word: str) -> None:
    """`gateway=3`: a service of ours, of which several can run: it has no fixed name of its own."""
    service, _, number = word.partition("=")
    if service not in SERVICES or not number.isdecimal():
        raise Wrong(f"docker-compose.yml has no service {service} to scale to {number}")
    if "container_name" in SERVICES[service] or "depends_on" not in SERVICES[service]:
        raise Wrong(f"{service} cannot run {number} times")
