"""Commands of Docker, read against docker-compose.yml, without an engine.

The services and variables that a command names must be in the file, and its options must be known (`KNOWN`).
`make compose-test` runs those that bring the file up, with `--scale` too, on a real engine.
"""

import re
import shlex
from typing import Any, Final

import yaml

from tests.compose.compose_file import FILE, SECRETS, VARIABLE
from tests.shown import Wrong

KNOWN: Final = {
    "up": {"--build", "--detach", "--wait", "--scale"},
    "down": {"--volumes"},
}
"""The commands of compose that a page may show, with their options."""
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
    options = {option for command in KNOWN.values() for option in command}
    if words[:2] == ["docker", "compose"]:
        if words[2] not in KNOWN:
            raise Wrong(f"no test knows docker compose {words[2]}")
        options = KNOWN[words[2]]
        words = words[3:]
    for place, word in enumerate(words):
        if word.startswith("--"):
            if word not in options:
                raise Wrong(f"no test knows {word}")
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
