"""CPU time and memory of processes, as Linux tells them."""

import os
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """CPU time a process has used, in user mode and in the kernel."""
    numbers = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(numbers[11]) + int(numbers[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
