"""Starts the share coordinator: `python -m sharequeue_share_coordinator`, settings from the environment."""

# ruff: noqa: E402
import gc
import sys

gc.disable()  # modules are never garbage, so a collection during the imports finds nothing; `run` enables it

from sharequeue.service.service import Program, start
from sharequeue_share_coordinator.prepare import prepare
from sharequeue_share_coordinator.settings import PREFIX, Settings

PROGRAM = Program("share coordinator", Settings, PREFIX, prepare)


if __name__ == "__main__":
    sys.exit(start(PROGRAM))
