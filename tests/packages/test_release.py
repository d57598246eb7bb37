"""`make release`: what it builds from a tag, without a network."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from docs.release import absolute
from tests.packages import wheels
from tests.packages.wheels import ROOT, Environment

ADDRESS = "https://forge.example/team/sharequeue"
DEVELOPERS = {"dev", "examples", "site"}
"""The extras that no part of a release needs."""
LANGUAGES = {"go": "tar.gz", "java": "tar.gz", "python": "tar.gz", "typescript": "tgz"}


ENGINE = """#!/bin/sh
case "$1" in
info) ;;
build) for last; do :; done; grep -q 'ARG EXTRAS=""' "$last/Dockerfile" && echo "built $*" ;;
save) echo "image $4" > "$3" ;;
esac
"""
"""A stand-in of docker."""


def release(repository: Path, out: Path, *arguments: str, engine: str = "exit 1") -> "subprocess.CompletedProcess[str]":
    """Release from a clone, on a machine whose docker is the script `engine`, without a network."""
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    programs = out.parent / "engines"
    programs.mkdir(exist_ok=True)
    for name, script in (("docker", engine), ("podman", "exit 1")):
        (programs / name).write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    nowhere["PATH"] = f"{programs}:{os.environ['PATH']}"
    command = [sys.executable, "-m", "docs.release", "--repository", str(repository), "--out", str(out), *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **nowhere}, check=False, capture_output=True, text=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of this repository."""
    clone = tmp_path_factory.mktemp("clone") / "sharequeue"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", ROOT.as_uri(), str(clone)], check=True)
    return clone


def test_a_release_has_all_its_parts(repository: Path, tmp_path: Path) -> None:
    without = release(repository, tmp_path / "dist", "--address", ADDRESS)
    assert (without.returncode, "there is no tag v0.1.0" in without.stderr) == (1, True)
    subprocess.run(["git", "tag", "v0.1.0"], cwd=repository, check=True)
    built = release(repository, tmp_path / "dist", "--address", ADDRESS)
    assert built.returncode == 0, built.stderr
    assert "the image is left out: neither docker nor podman has an engine that runs here" in built.stdout
    made = tmp_path / "dist/0.1.0"
    sums = dict(reversed(line.split("  ")) for line in (made / "SHA256SUMS").read_text().splitlines())
    wheel, sdist, bill = "sharequeue-0.1.0-py3-none-any.whl", "sharequeue-0.1.0.tar.gz", "sharequeue-0.1.0.cdx.json"
    sdks = {f"sharequeue-{language}-0.1.0.{suffix}" for language, suffix in LANGUAGES.items()}
    assert sums.keys() == {wheel, sdist, bill, *sdks}
    assert sums == {name: hashlib.sha256((made / name).read_bytes()).hexdigest() for name in sums}
    with tarfile.open(made / sdist) as opened:
        assert {"sharequeue-0.1.0/migrations/env.py", "sharequeue-0.1.0/LICENSE"} <= {*opened.getnames()}
    with tarfile.open(made / "sharequeue-typescript-0.1.0.tgz") as opened:
        package = json.load(opened.extractfile("package/package.json") or sys.stdin)
        assert {f"package/{file.removeprefix('./')}" for file in package["exports"].values()} <= {*opened.getnames()}
    assert (package["name"], package["version"], package["private"]) == ("sharequeue-typescript", "0.1.0", True)
    components = {each["name"]: each for each in json.loads((made / bill).read_text())["components"]}
    extras = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = (line for name in extras.keys() - DEVELOPERS for line in extras[name])
    assert {re.split(r"[^\w-]", line)[0] for line in lines} - {"sharequeue"} <= components.keys()
    assert components["msgspec"]["purl"].startswith("pkg:pypi/msgspec@")
    assert not {"pytest", "sharequeue"} & components.keys()
    described(made / wheel)
    installed(made / wheel, tmp_path)


def test_a_release_has_the_image_where_an_engine_runs(repository: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "tag", "--force", "v0.1.0"], cwd=repository, check=True)
    built = release(repository, tmp_path / "dist", "--address", ADDRESS, "--extras", "arrow", engine=ENGINE)
    assert built.returncode == 0, built.stderr
    assert "built build --tag sharequeue:0.1.0 --build-arg EXTRAS=arrow" in built.stderr
    image = tmp_path / "dist/0.1.0/sharequeue-0.1.0-image.tar"
    assert image.read_text() == "image sharequeue:0.1.0\n"
    sums = image.with_name("SHA256SUMS").read_text()
    assert f"{hashlib.sha256(image.read_bytes()).hexdigest()}  {image.name}\n" in sums
    assert "left out" not in built.stdout
    failing = ENGINE.replace("info) ;;", "info) ;;\nbuild) exit 1 ;;")
    built = release(repository, tmp_path / "dist", "--address", ADDRESS, engine=failing)
    assert (built.returncode, image.exists()) == (0, False), built.stderr
    assert "the image is left out: docker build failed" in built.stdout


def described(wheel: Path) -> None:
    """What an index shows of a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        told = Parser().parsestr(opened.read("sharequeue-0.1.0.dist-info/METADATA").decode())
        programs = opened.read("sharequeue-0.1.0.dist-info/entry_points.txt").decode()
    assert f"Homepage, {ADDRESS}" in told.get_all("Project-URL", [])
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)} <= {
        *told.get_all("Classifier", [])
    }
    page = told.get_payload()
    assert f"]({ADDRESS}/blob/v0.1.0/docs/start.md)" in page
    assert f"]({ADDRESS}/raw/v0.1.0/docs/pictures/sharequeue.svg)" in page
    assert [link for link in re.findall(r"\]\(([^)]*)\)", str(page)) if not link.startswith("https://")] == []
    assert "sharequeue = sharequeue.pytest_plugin" in programs


def installed(wheel: Path, folder: Path) -> None:
    """It installs in an environment that has nothing else, and imports."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    made = Environment(folder / "venv" / "bin")
    wheels.pip(made, "install", "--no-compile", "--no-index", "--no-deps", str(wheel))
    assert (
        "0.1.0\n"
        in made.run(
            "python",
            "-c",
            "import sharequeue, sharequeue_gateway; from importlib.metadata import version as v; print(v('sharequeue'))",
        ).stdout
    )


def test_links_of_a_page_become_absolute() -> None:
    page = "[a](docs/a.md#b) ![p](docs/p.svg) [c](https://x.example/) [d](#e)"
    assert absolute(page, "https://f.example/s", "v1") == (
        "[a](https://f.example/s/blob/v1/docs/a.md#b) ![p](https://f.example/s/raw/v1/docs/p.svg) [c](https://x.example/) [d](#e)"
    )
