"""Starts the gateway: `python -m sharequeue_gateway`, settings from the environment."""

# ruff: noqa: E402
import gc
import sys

gc.disable()  # modules are never garbage, so a collection during the imports finds nothing; `run` enables it

from sharequeue import log
from sharequeue.service.addresses import check_address
from sharequeue.service.service import Service, run
from sharequeue.service.settings import SettingsError, load
from sharequeue_gateway import gateway
from sharequeue_gateway.settings import PREFIX, Settings


def main() -> int:
    try:
        settings = load(Settings, PREFIX)
        settings.check()
        check_address(settings.host, settings.allow_unauthenticated, PREFIX)
    except (SettingsError, ValueError) as fault:
        print(f"sharequeue gateway: {fault}", file=sys.stderr)
        return 2
    log.configure(settings.log_level)

    async def prepare() -> Service:
        return await gateway.prepare(settings)

    return run(prepare, settings.host, settings.port, settings)


if __name__ == "__main__":
    sys.exit(main())
