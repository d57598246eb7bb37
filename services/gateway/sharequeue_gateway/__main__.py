"""Starts the gateway: `python -m sharequeue_gateway`, settings from the environment."""

# ruff: noqa: E402
import gc
import sys

gc.disable()  # modules are never garbage, so a collection during the imports finds nothing; `run` enables it

from sharequeue.service.service import Program, start
from sharequeue_gateway.gateway import prepare
from sharequeue_gateway.settings import PREFIX, Settings

PROGRAM = Program("gateway", Settings, PREFIX, prepare)


if __name__ == "__main__":
    sys.exit(start(PROGRAM))
