"""`make smoke`: one short run of each program that needs Go, Node.js, Maven, Chromium, nginx or Redis 7.

The parts run one after another, each to its end, and the last line counts them. A part whose tool is not here does not
run, and says so. `make nightly` runs the whole programs.
"""

import os
import shutil
import subprocess
import sys
import time
from typing import Final

LANGUAGES: Final = {"typescript": "npm", "go": "go"}
"""Clients that are made and played, and the tool of each."""


def has(tool: str, part: str) -> bool:
    """Whether a tool is in PATH; prints that the part of it does not run otherwise."""
    if shutil.which(tool) is not None:
        return True
    print(f"smoke: {part}: not run: there is no {tool} here", flush=True)
    return False


def run(module: str, *arguments: str) -> bool:
    """Run a program, and print how long it took. Returns: whether it succeeded."""
    began, before = time.monotonic(), os.times()
    code = subprocess.run([sys.executable, "-m", module, *arguments], check=False).returncode
    after = os.times()
    cpu_s = sum(after[2:4]) - sum(before[2:4])
    word = "FAILED" if code else "passed"
    print(f"smoke: {module}: {word} in {time.monotonic() - began:.0f} s, with {cpu_s:.0f} s of CPU", flush=True)
    return code == 0


def main() -> int:
    """Run all parts. Returns: 1 if one fails."""
    parts = [("tests.browser", "--smoke"), ("tests.proxy", "--smoke")]
    if has("npm", "tests.openapi"):
        parts.append(("tests.openapi",))
    if has("mvn", "tests.kafka"):
        parts.append(("tests.kafka", "--scripts", "4"))
    if languages := [name for name, tool in LANGUAGES.items() if has(tool, f"tests.sdks {name}")]:
        parts.append(("tests.sdks", "--smoke", *languages))
    results = [run(*part) for part in parts]
    print(f"smoke: {results.count(True)} passed, {results.count(False)} failed")
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
