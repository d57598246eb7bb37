"""What a reader has to carry is bounded: the first pages, and the readers of values with a schema."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("page", "most"), [("README.md", 9_000), ("ARCHITECTURE.md", 20_000)])
def test_a_first_page_is_short(page: str, most: int) -> None:
    assert len((ROOT / page).read_bytes()) <= most


def test_values_with_a_schema_are_read_by_libraries() -> None:
    files = (ROOT / "pipeline" / "sharequeue_pipeline" / "registry").rglob("*.py")
    assert 0 < sum(len(file.read_text().splitlines()) for file in files) <= 350


def test_what_earlier_commits_had_is_a_short_list() -> None:
    _, _, lost = (ROOT / "CHANGELOG.md").read_text().partition("Earlier commits had these, and 0.1.0 does not:\n")
    assert 0 < lost.count("\n- ") <= 10
