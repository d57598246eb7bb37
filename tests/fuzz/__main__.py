"""`python -m tests.fuzz`: schemathesis calls what openapi.json names, on a stack of its own, with all of its checks.

SEED in the environment is where the random part starts, else a fixed number. A failure prints the request as a line of
curl. The exclusions are in `schemathesis.toml` and `hooks.py`, with the reasons.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from sharequeue.client.sync import Producer, ShareConsumer
from sharequeue.stack.stack import Stack

ROOT: Final = Path(__file__).parents[2]
CONFIG: Final = Path(__file__).with_name("schemathesis.toml")
NAME: Final = "fuzz"
"""Of the topic and the group that exist, as the configuration has it."""
SEED: Final = "932"
MOST_S: Final = 600


def main() -> int:
    """Returns: the exit code of schemathesis."""
    with tempfile.TemporaryDirectory(prefix="sharequeue-fuzz-") as folder:
        stack = Stack(
            Path(folder) / "stack", gateway_port=0, coordinator_port=0, share_coordinator_port=0, tell=lambda _: None
        )
        try:
            stack.start()
            prepare(stack.url)
            code = fuzz(stack.url, folder)
            stack.check()
        finally:
            stack.stop()
    return code


def prepare(url: str) -> None:
    """A topic with records, and a group that has settled, released and rejected some and holds the others."""
    with Producer(url) as producer:
        producer.send_many(NAME, [{"n": n} for n in range(100)])
    with ShareConsumer(url, NAME, [NAME], acknowledgement="explicit", max_records=9) as consumer:
        for record in consumer.poll():
            consumer.acknowledge(record, ("accept", "release", "reject")[record.offset % 3])


def fuzz(url: str, folder: str) -> int:
    command = (
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run", f"{url}/openapi.json"),
        *("--seed", os.environ.get("SEED") or SEED),
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, check=False, timeout=MOST_S).returncode


if __name__ == "__main__":
    sys.exit(main())
