"""`make release ADDRESS=https://…`: builds what a release consists of, from a tag, without a network, into dist/.

    the tag ──▶ a folder of its own ──▶ wheel and sdist, whose README has absolute links
                                    ├──▶ an archive for each language of sdks/
                                    └──▶ the image, where docker or podman has an engine that runs
    what is installed here ──▶ the bill of materials: `bill_of_materials.py`
    all of these ──▶ SHA256SUMS

A second run on one tag, with the same libraries, makes the same bytes, but for the image. The engine takes the image's
base and libraries from its cache, or else from the network.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

from docs.bill_of_materials import bill_of_materials

ROOT: Final = Path(__file__).parents[1]
NAME: Final = "sharequeue"
DOCUMENT: Final = "tests/http/openapi.json"
"""The OpenAPI document, which each client is made of."""
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make release", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--address", required=True, help="of the repository's pages, such as https://forge.example/team/sharequeue"
    )
    parser.add_argument("--repository", type=Path, default=ROOT)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--extras", default="", help="of the image, such as arrow, which Spark's sink wants")
    given = parser.parse_args()
    version = tomllib.loads((given.repository / "pyproject.toml").read_text())["project"]["version"]
    tag = f"v{version}"
    if subprocess.run(
        ["git", "rev-parse", "-q", "--verify", f"refs/tags/{tag}"],
        cwd=given.repository,
        check=False,
        capture_output=True,
    ).returncode:
        sys.exit(f"there is no tag {tag}: pyproject.toml has the version {version}, and git tag {tag} makes the tag")
    if not re.match(r"https://[^/]+/", given.address):
        sys.exit(
            f"{given.address!r} is not the address of a site: write --address https://forge.example/team/sharequeue"
        )
    made = given.out / version
    made.mkdir(parents=True, exist_ok=True)
    for old in made.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / f"{NAME}-{version}"
        stamp = export(given.repository, tag, tree)
        left_out = build_image(tree, version, made, given.extras)
        address_pages(tree, given.address.rstrip("/"), tag)
        hatch = [sys.executable, "-m", "hatchling", "build", "-d", str(made.absolute())]
        subprocess.run(
            hatch, cwd=tree, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": str(stamp)}, stdout=sys.stderr
        )
        for language in sorted(path.name for path in (tree / "sdks").iterdir() if path.name != "tours"):
            archive_sdk(tree, language, version, made, stamp)
    bill = bill_of_materials(version, stamp)
    (made / f"{NAME}-{version}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(made.iterdir())}
    (made / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    print(*(f"{made / name}" for name in (*sums, "SHA256SUMS")), sep="\n")
    if left_out:
        print(f"the image is left out: {left_out}; git checkout {tag} && docker build -t {NAME}:{version} . makes it")


def export(repository: Path, tag: str, tree: Path) -> int:
    """Write the files of a tag into a folder. Returns: the time of its commit, in seconds since the epoch."""
    packed = subprocess.run(["git", "archive", tag], cwd=repository, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(tree, filter="data")
    told = subprocess.run(["git", "log", "-1", "--format=%ct", tag], cwd=repository, check=True, stdout=subprocess.PIPE)
    return int(told.stdout)


def build_image(tree: Path, version: str, made: Path, extras: str) -> str:
    """Build the image with an engine of this machine, and save it. Returns: why there is none, or ""."""
    engines = filter(shutil.which, ("docker", "podman"))
    engine = next((each for each in engines if succeeds(each, "info", stdout=subprocess.DEVNULL)), None)
    if engine is None:
        return "neither docker nor podman has an engine that runs here"
    image = f"{NAME}:{version}"
    if not succeeds(engine, "build", "--tag", image, "--build-arg", f"EXTRAS={extras}", str(tree), stdout=sys.stderr):
        return f"{engine} build failed"
    subprocess.run([engine, "save", "--output", str(made / f"{NAME}-{version}-image.tar"), image], check=True)
    return ""


def succeeds(*command: str, stdout: Any) -> bool:
    return subprocess.run(command, check=False, stdout=stdout).returncode == 0


def address_pages(tree: Path, address: str, tag: str) -> None:
    """Give the metadata its addresses, and the README links that lead there from any site."""
    pages = f"{address}/blob/{tag}"
    urls = {
        "Homepage": address,
        "Documentation": f"{pages}/docs/index.md",
        "Changelog": f"{pages}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }
    with (tree / "pyproject.toml").open("a") as project:
        project.write("\n[project.urls]\n" + "".join(f"{name} = {json.dumps(url)}\n" for name, url in urls.items()))
    readme = tree / "README.md"
    readme.write_text(absolute(readme.read_text(), address, tag))


def absolute(text: str, address: str, tag: str) -> str:
    """A page whose links lead to the pages of a repository, and whose pictures are its files."""
    return _LINK.sub(
        lambda link: f"{link[1]}[{link[2]}]({address}/{'raw' if link[1] else 'blob'}/{tag}/{link[3]})", text
    )


def archive_sdk(tree: Path, language: str, version: str, made: Path, stamp: int) -> None:
    """Pack the files of a language with the OpenAPI document that its client is made of.

    npm installs the archive of TypeScript. It stays `private`, as nobody owns a name at an index.
    """
    files = {path.name: path.read_bytes() for path in sorted((tree / "sdks" / language).iterdir())}
    files |= {"openapi.json": (tree / DOCUMENT).read_bytes(), "LICENSE": (tree / "LICENSE").read_bytes()}
    name = f"{NAME}-{language}"
    if language == "typescript":
        package: dict[str, Any] = {
            "name": name,
            "version": version,
            "license": "Apache-2.0",
            **json.loads(files["package.json"]),
        }
        modules = sorted(file.removesuffix(".ts") for file in files if file.endswith(".ts"))
        package["exports"] = {f"./{module}": f"./{module}.ts" for module in modules} | {
            "./openapi.json": "./openapi.json"
        }
        files["package.json"] = json.dumps(package, indent=2).encode() + b"\n"
    if language == "java":
        files["pom.xml"] = files["pom.xml"].replace(
            b"<version>1</version>", f"<version>{version}</version>".encode(), 1
        )
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for file, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"{'package' if language == 'typescript' else f'{name}-{version}'}/{file}")
            entry.size, entry.mtime, entry.mode = len(content), stamp, 0o644
            tar.addfile(entry, io.BytesIO(content))
    suffix = "tgz" if language == "typescript" else "tar.gz"
    (made / f"{name}-{version}.{suffix}").write_bytes(gzip.compress(packed.getvalue(), mtime=stamp))


if __name__ == "__main__":
    main()
