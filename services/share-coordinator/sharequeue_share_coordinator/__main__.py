"""Starts the share coordinator: `python -m sharequeue_share_coordinator`, settings from the environment."""

# ruff: noqa: E402
import gc
import sys

gc.disable()  # imported modules never become garbage; `run` enables it again

from functools import partial

from sharequeue import log
from sharequeue.service.addresses import check_address
from sharequeue.service.service import run
from sharequeue.service.settings import SettingsError, load
from sharequeue_share_coordinator.prepare import prepare
from sharequeue_share_coordinator.settings import PREFIX, Settings


def main() -> int:
    try:
        settings = load(Settings, PREFIX)
        settings.check()
        check_address(settings.host, settings.allow_unauthenticated, PREFIX)
    except (SettingsError, ValueError) as fault:
        print(f"sharequeue share coordinator: {fault}", file=sys.stderr)
        return 2
    log.configure(settings.log_level)
    return run(partial(prepare, settings), settings.host, settings.port, settings)


if __name__ == "__main__":
    sys.exit(main())
