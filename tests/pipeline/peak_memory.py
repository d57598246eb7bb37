"""How much memory a program takes at most."""

import subprocess
import sys
from typing import Final

_PRINT_PEAK: Final = """
import re
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


def peak_mib(program: str, *arguments: str) -> int:
    """MiB that a Python program took in memory at most. (`ru_maxrss` would also count the process that started it.)"""
    command = [sys.executable, "-c", program + _PRINT_PEAK, *arguments]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) // 1024
