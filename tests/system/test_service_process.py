"""One service of a stack as a process."""

import signal
from pathlib import Path

from sharequeue.stack import ServiceProcess
from tests.http.calls import wait_until

WAITING = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_a_paused_one_hears_that_it_should_stop(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    service = ServiceProcess("waiting", "waiting", 0, {"PYTHONPATH": str(tmp_path)}, tmp_path / "log")
    service.start()
    wait_until((tmp_path / "log").read_text)
    assert service.process is not None
    service.process.send_signal(signal.SIGSTOP)
    service.stop()
    assert service.process.returncode == 0, "it was not killed after a while"
