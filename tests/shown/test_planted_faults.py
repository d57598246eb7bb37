"""The faults of `make mutants` still have a place in the code that they change."""

from tests.mutants.__main__ import MUTANTS, misplaced


def test_each_fault_has_its_place() -> None:
    assert [f"{each.rule}: {reason}" for each in MUTANTS if (reason := misplaced(each))] == []
