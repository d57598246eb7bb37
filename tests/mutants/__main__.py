"""`python -m tests.mutants [WORD]`: plant each fault into a copy of the pure modules and see that a test fails.

Scenarios run first, then the model. Of the scenarios, those modules run first that have caught the most faults of the
same file, or have words of the rule in their names: most faults end there. Exits 1 if a fault survived, if its old
text no longer stands exactly once, or if its new text is no Python.
WORD: only faults whose file or rule holds it.
"""

import importlib
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import hypothesis
import pytest

from tests.mutants import (
    acquisition_faults,
    compression_faults,
    coordinator_faults,
    delivery_faults,
    group_faults,
    layout_faults,
    lock_faults,
    log_read_faults,
    pipeline_faults,
    read_faults,
    registry_faults,
    retention_faults,
    share_partition_faults,
    sink_faults,
    stream_faults,
    transaction_faults,
    window_faults,
)
from tests.mutants.mutant import COORDINATOR, GATEWAY, GROUP_COORDINATOR, PIPELINE, SHARED, Mutant

ROOT = Path(__file__).parents[2]
SOURCES = {
    GATEWAY: ROOT / "services/gateway" / GATEWAY,
    COORDINATOR: ROOT / "services/share-coordinator" / COORDINATOR,
    GROUP_COORDINATOR: ROOT / "services/coordinator" / GROUP_COORDINATOR,
    PIPELINE: ROOT / "pipeline" / PIPELINE,
    SHARED: ROOT / SHARED,
}
CORE = ROOT / "tests/core"
SCENARIOS = {
    GATEWAY: (
        "acquiring",
        "reading_on",
        "bounds",
        "new_records",
        "acknowledging",
        "writes_and_releases",
        "lock_timeout",
        "log_start",
        "dead_letters",
        "loading",
        "restoring",
        "restored_locks",
        "costs",
        "lock_entries",
        "lock_calls",
        "waking",
        "retention_rule",
        "compression",
        "transaction_rules",
        "committed_cache",
        "backoff",
        "never_begun",
        "reasons",
        "large_windows",
        "stream_window",
        "pending",
        "settled_by_hand",
    ),
    COORDINATOR: ("state_batches", "shard", "batch_list", "rows", "shard_replay"),
    GROUP_COORDINATOR: (
        "assignor",
        "share_group_membership",
        "share_group_initialization",
        "share_group_offsets",
    ),
    PIPELINE: (
        "bounded_read",
        "transactional_writes",
        "record_answers",
        "ranges",
        "micro_batch_admission",
        "isolation",
        "log_offsets",
        "wire_format",
        "sink_columns",
        "known_records",
        "digests",
    ),
    SHARED: ("compression", "record_answers", "record_runs"),
}
MODELS = {
    GATEWAY: ("share_partition_model", "pending_model"),
    COORDINATOR: ("share_partition_model",),
    GROUP_COORDINATOR: ("assignor_properties", "share_group_model"),
    PIPELINE: ("bounded_read",),
    SHARED: ("record_answers",),
}
FIRST = 3
"""How many modules of scenarios run before the others."""
STEM = 5
"""Words that begin with the same letters mean the same: acquire, acquiring."""
PARALLEL = 2
MOST_CPU_S = 100
SURVIVED = ""
MUTANTS = [
    *window_faults.MUTANTS,
    *acquisition_faults.MUTANTS,
    *share_partition_faults.MUTANTS,
    *delivery_faults.MUTANTS,
    *coordinator_faults.MUTANTS,
    *group_faults.MUTANTS,
    *retention_faults.MUTANTS,
    *compression_faults.MUTANTS,
    *transaction_faults.MUTANTS,
    *lock_faults.MUTANTS,
    *stream_faults.MUTANTS,
    *pipeline_faults.MUTANTS,
    *read_faults.MUTANTS,
    *log_read_faults.MUTANTS,
    *registry_faults.MUTANTS,
    *sink_faults.MUTANTS,
    *layout_faults.MUTANTS,
]


class FirstFailure:
    """A pytest plugin that keeps the name of the first test that fails."""

    name = SURVIVED

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid.rpartition("/")[2]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.name:
            self.name = f"{report.nodeid} cannot be read: {report.longrepr}"


def tests_of(names: Iterable[str]) -> list[Path]:
    return [CORE / f"test_{name}.py" for name in dict.fromkeys(names)]


def misplaced(mutant: Mutant) -> str | None:
    """Why a fault cannot be planted, or None."""
    package, _, module = mutant.file.partition("/")
    text = (SOURCES[package] / module).read_text()
    if (found := text.count(mutant.old)) != 1:
        return f"its old text stands {found} times in {mutant.file}"
    try:
        compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
    except SyntaxError as error:  # every test would fail
        return f"with its new text {mutant.file} cannot be read: {error}"
    return None


def copy_of_packages(folder: Path, mutant: Mutant | None) -> None:
    """A copy of the package with the fault, beside links to the others. Only the file with the fault compiles again."""
    for package, source in SOURCES.items():
        if mutant is not None and mutant.file.startswith(f"{package}/"):
            shutil.copytree(source, folder / package)
        else:
            (folder / package).symlink_to(source)
    if mutant is not None:
        path = folder / mutant.file
        path.write_text(path.read_text().replace(mutant.old, mutant.new))
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()


def likely_first(mutant: Mutant, scenarios: Sequence[str], caught: Counter[str]) -> list[str]:
    """Modules of scenarios, those first that probably catch a fault. It changes the time, not the outcome."""
    words = {word[:STEM] for word in re.findall("[a-z]+", f"{mutant.file} {mutant.rule}".lower())}

    def likely(scenario: str) -> int:
        return caught[scenario] + 2 * len(words & {word[:STEM] for word in scenario.split("_")})

    return sorted(scenarios, key=likely, reverse=True)


def failing_test(tests: Sequence[Path]) -> str:
    """The first test that fails in this process, or SURVIVED."""
    plugin = FirstFailure()
    options = ["--noconftest", "--assert=plain", "-p", "no:cacheprovider", "-x", "-q", "--tb=no", "-m", "not soak"]
    code = pytest.main([*options, *map(str, tests)], plugins=[plugin])
    return plugin.name or (SURVIVED if code == pytest.ExitCode.OK else f"pytest ends with {code}")


def in_child(mutant: Mutant | None, folder: Path, caught: Counter[str]) -> int:
    """Run the tests on a copy in a fork of this process, which writes the outcome to a file. Returns: its process id.

    `caught`: how many faults of the same file each module of scenarios has caught.
    """
    copy_of_packages(folder, mutant)
    process_id = os.fork()
    if process_id:
        return process_id
    if mutant is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.environ["NO_SHRINK"] = "1"
    hypothesis.settings.register_profile(
        "mutants",
        deadline=None,  # otherwise a busy machine catches faults
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        derandomize=True,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],  # a fault need not be shrunk to be caught
    )
    hypothesis.settings.load_profile("mutants")
    sys.path.insert(0, str(folder))
    if mutant is not None and mutant.file.startswith(f"{SHARED}/"):
        for each in [name for name in sys.modules if name.partition(".")[0] == SHARED]:
            del sys.modules[each]
    package = importlib.import_module(GATEWAY if mutant is None else mutant.file.partition("/")[0])
    if mutant is None:
        every = [name for names in (*SCENARIOS.values(), *MODELS.values()) for name in names]
        outcome = failing_test(tests_of(every))
    else:
        name = mutant.file.partition("/")[0]
        scenarios = likely_first(mutant, SCENARIOS[name], caught)
        parts = (scenarios[:FIRST], scenarios[FIRST:], MODELS[name])
        outcome = next(filter(None, (failing_test(tests_of(part)) for part in parts if part)), SURVIVED)
    if not str(package.__file__).startswith(str(folder)):
        outcome = SURVIVED
    (folder / "outcome").write_text(outcome)
    os._exit(0)


def outcomes(mutants: Sequence[Mutant | None]) -> Iterator[tuple[Mutant | None, str]]:
    """Each with the test that caught it, as they end."""
    waiting = list(reversed(mutants))
    running: dict[int, tuple[Mutant | None, Path]] = {}
    caught: dict[str, Counter[str]] = defaultdict(Counter)
    while waiting or running:
        while waiting and len(running) < PARALLEL:
            mutant = waiting.pop()
            folder = Path(tempfile.mkdtemp(prefix="mutant-"))
            known = Counter[str]() if mutant is None else caught[mutant.file]
            running[in_child(mutant, folder, known)] = mutant, folder
        process_id, status = os.wait()
        mutant, folder = running.pop(process_id)
        if os.WIFSIGNALED(status):
            yield mutant, "it never ends"
        else:
            outcome = (folder / "outcome").read_text()
            if mutant is not None:
                caught[mutant.file][outcome.partition(".py")[0].removeprefix("test_")] += 1
            yield mutant, outcome
        shutil.rmtree(folder)


def import_what_tests_need() -> None:
    """Import the tests' modules in this process, once for all forks, except the packages that are often mutated."""
    show = (
        "import sys, tests.core.test_share_partition_model, pyspark.sql, pyarrow, _pytest.pytester; print(*sys.modules)"
    )
    listed = subprocess.run([sys.executable, "-c", show], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.split():
        if not name.startswith((f"{SHARED}_", "tests.", "__")):
            importlib.import_module(name)


def main(word: str = "") -> int:
    import_what_tests_need()
    for _, fault in outcomes([None]):
        if fault:
            print(f"Without a fault a test fails: {fault}")
            return 1
    mutants = [mutant for mutant in MUTANTS if word in mutant.file or word in mutant.rule]
    bad = 0
    plantable = []
    for mutant in mutants:
        if reason := misplaced(mutant):
            bad += 1
            print(f"MISPLACED  {mutant.rule}: {reason}")
        else:
            plantable.append(mutant)
    for planted, test in outcomes(plantable):
        assert planted is not None
        bad += not test
        print(f"{'caught' if test else 'SURVIVED':10} {planted.rule}{f' ({test})' if test else ''}", flush=True)
    print(f"{len(mutants) - bad} of {len(mutants)} caught")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
