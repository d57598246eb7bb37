"""Decides how this process's memory is allocated: large blocks go back to the system as soon as they are free.

glibc's malloc asks the system for blocks above a threshold one by one, which keeps nothing of them. By default the
first such block that is freed raises the threshold to its size, up to 32 MiB. From then on blocks of that size share
the heap, where each leaves a hole: a produce of 10 MiB that needs four times its size at a moment grew a gateway by
seven times.
"""

import ctypes
import sys
from typing import Final

LARGE_BLOCK_BYTES: Final = 1280 << 10
"""More than the parts of a large request, of a MiB each: a block from the system costs a page fault for each of its
pages. Less than the bodies that make a gateway grow: a freed one in the heap is memory that stays."""
KEPT_BYTES: Final = 8 << 20
"""Free memory at the end of a heap that is kept for smaller blocks."""
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3


def release_large_blocks() -> None:
    """Fix the thresholds for as long as this process runs. Other C libraries than glibc have none,
    and keep their ways."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
