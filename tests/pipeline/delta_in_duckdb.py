"""Reads a Delta table with DuckDB, in a process of its own.

The process ends without an interpreter exit: threads of DuckDB, deltalake or Arrow can abort a Python that ends while
it has loaded them, after it has printed the right rows.
"""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys, duckdb, deltalake
table_rows = deltalake.DeltaTable(sys.argv[1]).to_pyarrow_dataset()
print(duckdb.sql(sys.argv[2]).fetchall(), flush=True)
os._exit(0)
"""


def query(table: Path, select: str) -> str:
    """The rows of `SELECT {select}` from the table, as Python prints them."""
    command = [sys.executable, "-c", PROGRAM, str(table), f"SELECT {select} FROM table_rows"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
