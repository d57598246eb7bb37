"""Starts gateways whose machine has a wrong wall clock, each by so many hours as a test says."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from sharequeue.stack.stack import ServiceProcess

GATEWAY = "sharequeue_gateway"
NODE_ID = "SHAREQUEUE_GATEWAY_NODE_ID"
WRONG = """
import runpy, sys, time
right, right_ns, hours = time.time, time.time_ns, float(sys.argv[2])
time.time = lambda: right() + hours * 3600
time.time_ns = lambda: right_ns() + int(hours * 3600 * 10**9)
module = sys.argv[1]
sys.argv = [module]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def set_clocks(monkeypatch: pytest.MonkeyPatch, hours: Mapping[str, float]) -> None:
    """From now on gateways of these node ids start with a wall clock that is wrong by so many hours."""
    usual: Callable[..., Any] = ServiceProcess.popen

    def popen(command: Sequence[str], **options: Any) -> Any:
        wrong = hours.get(options["env"].get(NODE_ID, ""))
        if command[-1] != GATEWAY or not wrong:
            return usual(command, **options)
        return subprocess.Popen([sys.executable, "-P", "-c", WRONG, GATEWAY, str(wrong)], **options)

    monkeypatch.setattr(ServiceProcess, "popen", staticmethod(popen))
