"""`python -m tests.mutants [WORD]`: plant each fault into a copy of the pure modules and see that a test fails.

Scenarios run first, then the model. Exits 1 if a fault survived, or if its old text no longer stands exactly once.
WORD: only faults whose file or rule holds it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.planted import COORDINATOR, GATEWAY, MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
SOURCES = {
    GATEWAY: ROOT / "services/gateway" / GATEWAY,
    COORDINATOR: ROOT / "services/share-coordinator" / COORDINATOR,
}
CORE = ROOT / "tests/core"
MODEL = CORE / "test_share_partition_model.py"
SCENARIOS = {
    GATEWAY: [CORE / f"test_{name}.py" for name in ("acquiring", "acknowledging", "locks_and_log_start", "loading")],
    COORDINATOR: [CORE / f"test_{name}.py" for name in ("state_batches", "shard", "shard_replay")],
}
PARALLEL = 2
LONGEST_RUN_S = 120


def misplaced(mutant: Mutant) -> str | None:
    """Why a fault cannot be planted, or None."""
    package, _, module = mutant.file.partition("/")
    found = (SOURCES[package] / module).read_text().count(mutant.old)
    return None if found == 1 else f"its old text stands {found} times in {mutant.file}"


def failing_test(copy: Path, tests: list[Path]) -> str | None:
    """The first test that fails on the copy, or None if all pass."""
    command = [sys.executable, "-m", "pytest", "--noconftest", "-p", "no:cacheprovider", "-x", "-q", "--tb=no"]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "NO_SHRINK": "1"}
    try:
        run = subprocess.run(
            [*command, "-m", "not soak", *map(str, tests)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_RUN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "it never ends"
    if run.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) \S*?([^/\s]+?)(?: - .*)?$", run.stdout, re.MULTILINE)
    return failed.group(1) if failed else run.stdout[-500:] + run.stderr[-500:]


def copied(folder: str, mutant: Mutant | None) -> Path:
    """Copies of the two packages in `folder`, one of them with the fault."""
    copy = Path(folder)
    for package, source in SOURCES.items():
        shutil.copytree(source, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    if mutant is not None:
        path = copy / mutant.file
        path.write_text(path.read_text().replace(mutant.old, mutant.new))
    return copy


def catch(mutant: Mutant) -> str | None:
    """The test that catches a fault, or None if it survives."""
    package = mutant.file.partition("/")[0]
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = copied(folder, mutant)
        return failing_test(copy, SCENARIOS[package]) or failing_test(copy, [MODEL])


def sound() -> str | None:
    """A test that fails without any fault, so that nothing would be shown by its failing; None if there is none."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = copied(folder, None)
        which = [sys.executable, "-c", f"import {GATEWAY}; print({GATEWAY}.__file__)"]
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        imported = subprocess.run(which, env=environment, capture_output=True, text=True, check=True).stdout
        if not imported.startswith(str(copy)):
            return f"the tests import {imported.strip()}, not the copy"
        return failing_test(copy, [path for paths in SCENARIOS.values() for path in paths] + [MODEL])


def main(word: str = "") -> int:
    mutants = [mutant for mutant in MUTANTS if word in mutant.file or word in mutant.rule]
    if fault := sound():
        print(f"Without a fault: {fault}")
        return 1
    bad = 0
    plantable = []
    for mutant in mutants:
        if reason := misplaced(mutant):
            bad += 1
            print(f"MISPLACED  {mutant.rule}: {reason}")
        else:
            plantable.append(mutant)
    with ThreadPoolExecutor(PARALLEL) as pool:
        for mutant, test in zip(plantable, pool.map(catch, plantable), strict=True):
            bad += test is None
            print(f"{'caught' if test else 'SURVIVED':10} {mutant.rule}{f' ({test})' if test else ''}", flush=True)
    print(f"{len(mutants) - bad} of {len(mutants)} caught")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
