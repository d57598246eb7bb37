"""What a page shows works as it is shown: each block has a test that runs it, each code in a sentence a kind."""

import re
from pathlib import Path

import pytest

from tests.shown import BLOCK, PAGES, ROOT, Wrong, sentences
from tests.shown.kinds import FOREIGN, OF_OTHERS, kind_of, of_kind

RUN_BY = {
    ("README.md", "sh"): "tests/system/test_readme.py",
    ("README.md", "json"): "tests/system/test_readme.py",
    ("README.md", "python"): "tests/system/test_readme.py",
    ("docs/client.md", "python"): "tests/system/test_client_page.py",
    ("docs/dead-letters.md", "sh"): "tests/system/test_pages.py",
    ("docs/dead-letters.md", "json"): "tests/system/test_pages.py",
    ("docs/kafka.md", "sh"): "tests/kafka_log/test_page.py",
    ("docs/kafka.md", "json"): "tests/kafka_log/test_page.py",
    ("docs/migrating.md", "python"): "tests/system/test_pages.py",
    ("docs/pipeline-recipes.md", "sh"): "tests/pipeline/test_recipes.py",
    ("docs/pipeline-recipes.md", "python"): "tests/pipeline/test_recipes.py",
    ("docs/pipeline.md", "sh"): "tests/pipeline/test_documents.py",
    ("docs/pipeline.md", "python"): "tests/pipeline/test_documents.py",
    ("docs/production.md", "install"): "tests/packages/test_server_extra.py",
    ("docs/production.md", "sh"): "tests/stores/test_production_page.py",
    ("docs/production.md", "ini"): "tests/stores/test_production_page.py",
    ("docs/production.md", "systemd"): "tests/stores/test_production_page.py",
    ("docs/production.md", "restore"): "tests/stores/test_production_page.py",
    ("docs/production.md", "compose"): "tests/compose/__main__.py",
    ("docs/proxy.md", "nginx"): "tests/proxy/__main__.py",
    ("docs/proxy.md", "yaml"): "tests/proxy/traefik.py",
    ("docs/recipes.md", "sh"): "tests/system/test_pages.py",
    ("docs/recipes.md", "python"): "tests/system/test_pages.py",
    ("docs/security.md", "sh"): "tests/system/test_security_page.py",
    ("docs/sdks.md", "sh"): "tests/system/test_pages.py",
    **{("docs/sdks.md", language): "tests/sdks/page.py" for language in ("python", "ts", "go", "java")},
    ("docs/start.md", "sh"): "tests/system/test_pages.py",
    ("docs/start.md", "json"): "tests/system/test_pages.py",
    ("docs/start.md", "python"): "tests/system/test_pages.py",
    ("docs/tour.md", "sh"): "tests/system/test_readme.py",
    ("docs/tour.md", "json"): "tests/system/test_readme.py",
    ("docs/scheduled.md", "sh"): "tests/system/test_pages.py",
    ("docs/streams.md", "sh"): "tests/system/test_pages.py",
    ("docs/streams.md", "js"): "tests/browser/__main__.py",
    ("docs/streams.md", "python"): "tests/system/test_pages.py",
    ("docs/transactions.md", "sh"): "tests/system/test_pages.py",
    ("docs/transactions.md", "python"): "tests/system/test_pages.py",
    ("docs/worker.md", "sh"): "tests/system/test_pages.py",
    ("docs/worker.md", "python"): "tests/system/test_pages.py",
}
"""The tests that run the blocks of a language on a page. Other blocks are pictures, or output."""
RUN_WITHOUT_A_LANGUAGE = {
    "docs/sdks.md": "`make sdks` runs them",
    "docs/kafka.md": "`make kafka-log-test` runs them",
    "CONTRIBUTING.md": "for who changes the project",
}
COMMAND = re.compile(
    r"^(?:\(?umask|(?:\S*/)?(?:sharequeue|python3?|pip|bash|sh)|curl|docker|git|npm|npx|psql|seq|sudo|systemctl)\s",
    re.MULTILINE,
)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_each_block_has_a_test_that_runs_it() -> None:
    shown = {(name_of(page), language) for page in PAGES for language, _ in BLOCK.findall(page.read_text())}
    assert {place for place in shown if place[1] not in ("", "text")} == {*RUN_BY}
    for (page, _), test in RUN_BY.items():
        assert Path(page).name in (ROOT / test).read_text(), f"{test} does not name {page}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_block_without_a_program_has_no_commands(page: Path) -> None:
    """But `make up`, which a reader begins with, and the activation of its environment."""
    printed = [block for language, block in BLOCK.findall(page.read_text()) if language in ("", "text")]
    commands = [found[0] for block in printed for found in COMMAND.finditer(block)]
    assert commands == [] or name_of(page) in RUN_WITHOUT_A_LANGUAGE


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_code_in_a_sentence_has_a_kind_and_passes_its_check(page: Path) -> None:
    faults = []
    for code in sentences(page.read_text()):
        try:
            kind_of(code)[1](code)
        except Wrong as fault:
            faults.append(f"{code}: {fault}")
    assert faults == []


def test_the_names_of_others_are_still_on_a_page() -> None:
    shown = {code for page in PAGES for code in sentences(page.read_text()) if FOREIGN.fullmatch(code)}
    listed = {name for names in OF_OTHERS.values() for name in names.split()}
    assert {
        name for name in listed if not any(re.fullmatch(re.escape(name).replace(r"\.", "[. ]"), code) for code in shown)
    } == set()


@pytest.mark.parametrize("kind", ["sql", "spark", "registry", "promql", "haproxy"])
def test_the_kinds_that_other_tests_check_are_on_the_pages(kind: str) -> None:
    assert of_kind(kind)
