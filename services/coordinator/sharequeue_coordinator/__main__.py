"""Starts the group coordinator: `python -m sharequeue_coordinator`, settings from the environment."""

# ruff: noqa: E402
import gc
import sys

gc.disable()  # modules are never garbage, so a collection during the imports finds nothing; `run` enables it

from sharequeue.service.service import Program, start
from sharequeue_coordinator.prepare import prepare
from sharequeue_coordinator.settings import PREFIX, Settings

PROGRAM = Program("group coordinator", Settings, PREFIX, prepare)


if __name__ == "__main__":
    sys.exit(start(PROGRAM))
