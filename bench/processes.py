"""CPU time and memory of processes, and what else a machine does, from Linux's /proc."""

import contextlib
import os
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, in user mode and in the kernel."""
    numbers = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(numbers[11]) + int(numbers[12])) / _TICKS


def thread_cpu_seconds(pid: int) -> float:
    """CPU time of a process's main thread so far, exact: `cpu_seconds` counts in ticks of 10 ms."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def threads_cpu_seconds(pid: int, named: str = "") -> float:
    """CPU time so far of all threads that a process has now, exact; of those with `named` in their names."""
    nanoseconds = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if named in (thread / "comm").read_text():
                nanoseconds += int((thread / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def family_cpu_seconds(pid: int) -> float:
    """CPU time of a process and its children so far, ended children included."""
    children = [
        int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()
    ]
    ended = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[13:15]
    return cpu_seconds(pid) + sum(map(int, ended)) / _TICKS + sum(map(cpu_seconds, children))


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, shared pages included."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def reset_peak(pid: int) -> None:
    """Start a new measurement of `peak_resident_bytes`."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_resident_bytes(pid: int) -> int:
    """The largest resident memory of a process since `reset_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


class Machine:
    """The time that all processors of this machine have spent so far. `since` compares two of these."""

    def __init__(self) -> None:
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        self._all = sum(fields)
        self._idle = fields[3] + fields[4]
        self._stolen = fields[7]

    def since(self, earlier: "Machine") -> tuple[float, float]:
        """Returns: the shares of all processors' time that was used, and that the host gave to other machines."""
        time = max(1, self._all - earlier._all)
        return 1 - (self._idle - earlier._idle) / time, (self._stolen - earlier._stolen) / time
