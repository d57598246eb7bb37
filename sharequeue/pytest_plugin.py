"""The fixture `sharequeue_url`: a stack for the tests of a program. pytest finds it where sharequeue is installed."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

UP: Final = (sys.executable, "-c", "from sharequeue.cli import main; main()", "up", "--json")
PORTS: Final = ("--gateway-port", "0", "--coordinator-port", "0", "--share-coordinator-port", "0")
STOP_S: Final = 60


@pytest.fixture(scope="session")
def sharequeue_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start an empty stack, which all tests of the run share, so each should use topics of its own. It needs the extra
    [up].

    Returns: the URL of its gateway.
    """
    folder = tmp_path_factory.mktemp("sharequeue")
    said = folder / "stderr"
    with said.open("wb") as stderr:
        stack = subprocess.Popen([*UP, *PORTS, "--data-dir", folder / "data"], stdout=subprocess.PIPE, stderr=stderr)
    assert stack.stdout is not None
    ready = stack.stdout.readline()
    if not ready:
        stack.wait()
        pytest.fail(f"`sharequeue up` does not start: {said.read_text()}", pytrace=False)
    running = json.loads(ready)
    try:
        yield running["gateways"][0]
    finally:
        stack.terminate()
        try:
            stack.wait(STOP_S)
        finally:
            stack.kill()
            stack.stdout.close()
        shutil.rmtree(Path(running["postgresql_data"]).parent, ignore_errors=True)  # of root, it lies elsewhere
