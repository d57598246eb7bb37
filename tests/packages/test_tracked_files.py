"""The repository holds what its authors wrote, and no file that a tool leaves behind."""

import subprocess
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
OURS = {".ci", ".dockerignore", ".gitignore"}
LEFT_BEHIND = {"__pycache__", "node_modules", "dist"}


def test_no_cache_of_a_tool_is_tracked() -> None:
    """Tools keep caches in folders whose names begin with a dot: .schemathesis was tracked once."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    paths = [PurePosixPath(path) for path in listed.split("\0") if path]
    assert PurePosixPath("README.md") in paths
    hidden = {str(path) for path in paths if any(part.startswith(".") and part not in OURS for part in path.parts)}
    assert hidden | {str(path) for path in paths if LEFT_BEHIND & {*path.parts}} == set()
