"""`python -m tests.openapi`: both documents before Redocly's and Spectral's recommended rules. Node's tools are
installed in `dist/openapi`, in the versions of package.json. Any error and any warning fails.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from openapi_spec_validator import OpenAPIV30SpecValidator, OpenAPIV31SpecValidator

from sharequeue.openapi import to_3_0
from tests.openapi.public import public_document

HERE: Final = Path(__file__).parent
TOOLS: Final = HERE.parents[1] / "dist/openapi"


def main() -> int:
    """Returns: 1 if a linter finds anything."""
    if shutil.which("npm") is None:
        print("make lint-document needs Node.js 20 or later with npm", file=sys.stderr)
        return 1
    install()
    current = public_document()
    older = to_3_0(current)
    faults = [*OpenAPIV31SpecValidator(current).iter_errors(), *OpenAPIV30SpecValidator(older).iter_errors()]
    for fault in faults:
        print(fault.message, file=sys.stderr)
    failed = bool(faults)
    with tempfile.TemporaryDirectory(prefix="sharequeue-openapi-") as folder:
        for name, whole in (("openapi.json", current), ("openapi-3.0.json", older)):
            (Path(folder) / name).write_text(json.dumps(whole, indent=1))
        files = [f"{folder}/openapi.json", f"{folder}/openapi-3.0.json"]
        failed |= lint("redocly", "lint", f"--config={HERE / 'redocly.yaml'}", "--format=stylish", *files)
        failed |= lint("spectral", "lint", f"--ruleset={HERE / 'spectral.yaml'}", "--fail-severity=hint", *files)
    print("the documents are clean" if not failed else "the documents have faults", file=sys.stderr)
    return int(failed)


def install() -> None:
    """Install the linters, if those of package.json are not there."""
    wanted = (HERE / "package.json").read_text()
    mark = TOOLS / "installed.json"
    if not mark.exists() or mark.read_text() != wanted:
        TOOLS.mkdir(parents=True, exist_ok=True)
        (TOOLS / "package.json").write_text(wanted)
        command = ("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent")
        subprocess.run(command, cwd=TOOLS, check=True, timeout=600)
        mark.write_text(wanted)


def lint(tool: str, *arguments: str) -> bool:
    """Returns: whether the tool found an error or a warning."""
    done = subprocess.run(
        (str(TOOLS / "node_modules/.bin" / tool), *arguments),
        check=False,
        timeout=300,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    found = done.returncode != 0 or "warning" in done.stdout
    if found:
        print(done.stdout, done.stderr, file=sys.stderr)
    return found


if __name__ == "__main__":
    sys.exit(main())
