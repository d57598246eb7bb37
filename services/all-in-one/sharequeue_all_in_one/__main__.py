"""Starts the three services in one process: `python -m sharequeue_all_in_one`, settings from the environment."""

# ruff: noqa: E402
import gc
import sys

gc.disable()  # modules are never garbage, so a collection during the imports finds nothing; `run` enables it

from sharequeue_coordinator.__main__ import PROGRAM as GROUP_COORDINATOR
from sharequeue_gateway.__main__ import PROGRAM as GATEWAY
from sharequeue_share_coordinator.__main__ import PROGRAM as SHARE_COORDINATOR

from sharequeue.service.service import start

if __name__ == "__main__":
    sys.exit(start(SHARE_COORDINATOR, GROUP_COORDINATOR, GATEWAY))
