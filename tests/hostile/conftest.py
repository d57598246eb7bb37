"""A stack of its own for these modules, with default settings, as tests/http has one."""

from tests.http.conftest import background, data_dir, gateway, own_gateway, shared_database, shared_stack

__all__ = ["background", "data_dir", "gateway", "own_gateway", "shared_database", "shared_stack"]
