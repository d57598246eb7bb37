"""Images for an engine that reaches no image registry: built from Debian's packages under the names they stand in for.

The way to Debian's packages and to the Python index is this machine's own: its apt mirror, CA bundle, pip configuration
and proxies are read when they are needed and written nowhere but into the images.
"""

import ast
import contextlib
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.compose.engine import Engine, EngineError, install_packages, say

DIRECTORY: Final = Path(__file__).parent / "stand-ins"
BASE: Final = "sharequeue-test/debian:bookworm"
SUITE: Final = "bookworm"
PROXIES: Final = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
PIP_OPTIONS: Final = ("index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout")


def build_arguments() -> dict[str, str]:
    """The build arguments, by name, with which pip reaches this machine's index."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    arguments = {name: os.environ[name] for name in PROXIES if os.environ.get(name)}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        option = key.rpartition(".")[2]
        if option in PIP_OPTIONS and ast.literal_eval(value):
            arguments[f"PIP_{option.upper().replace('-', '_')}"] = ast.literal_eval(value)
    return arguments


@contextlib.contextmanager
def images(engine: Engine, names: list[str]) -> Iterator[None]:
    """Pull or build the images that are missing. Built ones are removed from an engine that is not ours."""
    missing = [name for name in names if not engine.pull(name)]
    try:
        if missing:
            _make_base(engine)
        for name in missing:
            _make(engine, name)
        yield
    finally:
        made = [name for name in (*missing, BASE) if missing and engine.has_image(name)]
        if made and not engine.own:
            engine.docker("rmi", "--force", *made)


def _make(engine: Engine, name: str) -> None:
    directory = DIRECTORY / name.partition(":")[0]
    if not directory.is_dir():
        raise EngineError(f"there is no stand-in for {name}")
    say(f"building a stand-in for {name}")
    arguments = [part for item in build_arguments().items() for part in ("--build-arg", "=".join(item))]
    engine.docker("build", "--network=host", *arguments, "--tag", name, str(directory))


def _make_base(engine: Engine) -> None:
    if shutil.which("debootstrap") is None:
        if os.geteuid() != 0:
            raise EngineError("no image registry is reached, and stand-ins need debootstrap, run as root")
        install_packages("debootstrap")
    say(f"making a base image of Debian {SUITE}")
    with tempfile.TemporaryDirectory(prefix="sharequeue-rootfs-") as directory:
        root = Path(directory) / "root"
        mirror = [address for address in [_mirror()] if address]
        command = ["debootstrap", "--variant=minbase", "--include=ca-certificates", SUITE, str(root), *mirror]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EngineError(f"debootstrap failed:\n{done.stdout[-4000:]}{done.stderr}")
        bundle = ssl.get_default_verify_paths().cafile
        if bundle:
            shutil.copyfile(bundle, root / "etc/ssl/certs/ca-certificates.crt")
        no_services = root / "usr/sbin/policy-rc.d"
        no_services.write_text("#!/bin/sh\nexit 101\n")
        no_services.chmod(0o755)
        archive = Path(directory) / "root.tar"
        subprocess.run(["tar", "--numeric-owner", "-C", str(root), "-cf", str(archive), "."], check=True)
        engine.docker("import", "--change", "ENV DEBIAN_FRONTEND=noninteractive", str(archive), BASE)


def _mirror() -> str | None:
    """Where this machine gets Debian's packages from; None where it is not a Debian machine of that suite."""
    if shutil.which("apt-get") is None:
        return None
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main"]
    listed = subprocess.run([*command, f"Codename: {SUITE}"], capture_output=True, text=True, check=False)
    return next(iter(listed.stdout.split()), None)
