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


def family_cpu_seconds(pid: int) -> float:
    """The same for a process and its children, those that have ended among them."""
    children = [
        int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()
    ]
    ended = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[13:15]
    return cpu_seconds(pid) + sum(map(int, ended)) / _TICKS + sum(map(cpu_seconds, children))


def resident_bytes(pid: int) -> int:
    """Memory of a process that is not swapped out, what it shares with others included."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def reset_peak(pid: int) -> None:
    """Have `peak_resident_bytes` begin again."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_resident_bytes(pid: int) -> int:
    """The most memory a process had since `reset_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
