"""The documents name everything that exists and nothing else: settings, metrics, calls, make targets, files."""

import ast
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
import sharequeue_coordinator.settings
import sharequeue_gateway.settings
import sharequeue_share_coordinator.settings
import yaml
from click.testing import CliRunner
from sharequeue_gateway.share_partition.runs import TRANSITIONS

from docs import reference
from docs.pictures import draw
from sharequeue.cli.up import up
from sharequeue.protocol import apis
from sharequeue.protocol.errors import BY_CODE
from sharequeue_http.forms.api import Api

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SETTINGS = {
    module.PREFIX: module.Settings
    for module in (
        sharequeue_gateway.settings,
        sharequeue_coordinator.settings,
        sharequeue_share_coordinator.settings,
    )
}
NO_METRICS = {
    "sharequeue_gateway",
    "sharequeue_coordinator",
    "sharequeue_http",
    "sharequeue_share_coordinator",
    "sharequeue_all_in_one",
    "sharequeue_groups_changes",
}
"""Packages, and a channel of PostgreSQL."""
PUBLIC = [api for api in vars(apis).values() if isinstance(api, Api) and not api.internal]


def section(document: str, heading: str) -> str:
    """The text below the heading that begins so, up to the next one."""
    text = (DOCS / document).read_text()
    return re.split(r"^## ", text.split(f"\n## {heading}", 1)[1], flags=re.MULTILINE)[0]


def rows(text: str) -> dict[str, list[str]]:
    """The rows of the tables in a text, by their first cell without backquotes."""
    lines = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| `")]
    return {cells[0].strip().strip("`"): [cell.strip().strip("`") for cell in cells[1:]] for cells in lines}


@pytest.mark.parametrize("page", reference.TABLES)
def test_the_tables_made_from_the_code_are_up_to_date(page: str) -> None:
    text = (DOCS / page).read_text()
    assert reference.renewed(page, text) == text, "run python -m docs.reference"


def test_a_table_without_a_place_on_its_page_is_refused() -> None:
    text = (DOCS / "errors.md").read_text().replace("<!-- made: errors -->", "")
    with pytest.raises(ValueError, match=r"docs/errors\.md: 0 places for the table 'errors'"):
        reference.renewed("errors.md", text)


@pytest.mark.parametrize("prefix", SETTINGS)
def test_every_setting_is_documented(prefix: str) -> None:
    heading = next(line for line in (DOCS / "configuration.md").read_text().splitlines() if f"`{prefix}…`" in line)
    own = rows(section("configuration.md", heading.removeprefix("## ")))
    limits = rows(section("configuration.md", "Limits of connections"))
    assert own.keys() | limits.keys() == set(SETTINGS[prefix].__struct_fields__)


def test_every_error_is_documented_with_what_to_do() -> None:
    documented = rows((DOCS / "errors.md").read_text())
    assert documented.keys() == reference.ADVICE.keys() == BY_CODE.keys() - {"NONE"}


def test_every_name_of_a_metric_in_the_source_is_documented() -> None:
    """Also one that a module defines which docs/reference.py does not know."""
    documented = rows((DOCS / "metrics.md").read_text()).keys()
    named: set[str] = set()
    for path in PATHS:
        if path.startswith(("sharequeue/", "sharequeue_http/", "services/")) and path.endswith(".py"):
            named |= set(re.findall(r'"(sharequeue_[a-z_]+)"', (ROOT / path).read_text()))
    metrics = {name.removesuffix("_total") for name in named} - NO_METRICS
    assert metrics == documented


def test_a_metric_of_kafka_that_is_there_is_not_said_to_be_missing() -> None:
    there = set(re.findall(r"[\w-]+", " ".join(re.findall(r"Kafka: ([^|]+?)\. \|", (DOCS / "metrics.md").read_text()))))
    missing = set(re.findall(r"`([\w-]+)`", section("metrics.md", "Kafka's metrics that are not here")))
    assert there & missing == {"InFlightBatchMessageCount", "FetchLockTimeMs"}, "one for all partitions"


@pytest.mark.parametrize("api", PUBLIC, ids=lambda api: api.operation_id)
def test_every_call_is_documented_with_its_particular_errors(api: Api) -> None:
    text = (DOCS / "api.md").read_text()
    (row,) = [
        line for line in text.splitlines() if line.startswith(f"| `{api.method} {api.path}` {api.operation_id} |")
    ]
    if "| the same |" not in row:
        missing = [code for code in api.errors if not re.search(rf"\b{code}\b", row)]
        assert not missing
    for name in getattr(api.request, "__struct_fields__", ()):
        assert re.search(rf"\b{name}\b", text), f"{name} of {api.operation_id} is not explained"
    answered_as_another = re.search(r"→ as \w+", row)
    for name in () if answered_as_another else getattr(api.response, "__struct_fields__", ()):
        assert re.search(rf"\b{name}\b", row), f"{name} of the answer is not in the row"


def test_every_documented_call_exists() -> None:
    documented = re.findall(r"^\| `([A-Z]+ /\S+)`", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(f"{api.method} {api.path}" for api in PUBLIC)


def test_the_commands_for_compose_are_those_at_the_top_of_its_file() -> None:
    """Tests run them: tests/system/test_compose_file.py makes .env, tests/compose brings the file up."""
    (shown,) = re.findall(r"^```compose\n(.*?)^```", (DOCS / "production.md").read_text(), re.MULTILINE | re.DOTALL)
    head = (ROOT / "docker-compose.yml").read_text().split("\nservices:")[0]
    assert all(line in head for line in shown.splitlines())


def test_every_make_target_is_documented() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    documented = re.findall(r"^\| `make ([a-z-]+)`", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert {*documented, "help", "install"} == {*targets}


def test_the_makefile_names_modules_that_exist() -> None:
    """pytest runs nothing of a shard that names one which is gone."""
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    lists = re.findall(r"\$\(addprefix (tests/\S+),([^)]*)\)", makefile)
    named = [f"{prefix}{name}" for prefix, names in lists for name in names.split()]
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", ["docs/start.md", "docs/sdks.md"])
def test_each_option_of_make_up_exists(page: str) -> None:
    shown = re.findall(r'`make up ARGS=(?:"([^`]+)"|(\S+))`', (ROOT / page).read_text())
    assert shown
    for quoted, bare in shown:
        done = CliRunner().invoke(up, [*shlex.split(quoted or bare), "--help"])
        assert done.exit_code == 0, done.output
    assert re.search(r"^up: .*\n\t\$\(BIN\)/sharequeue up \$\(ARGS\)$", (ROOT / "Makefile").read_text(), re.MULTILINE)


NOT_OURS = ("__pycache__", "dist")


def paths() -> Iterator[str]:
    """Every path in the repository, from its root: files, and folders with a slash at the end."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in NOT_OURS]
        place = Path(folder).relative_to(ROOT).as_posix()
        yield from (f"{place}/{name}" for name in files)
        yield f"{place}/"


PATHS = tuple(paths())
DOCUMENTS = [ROOT / path for path in PATHS if path.endswith(".md")]
IS_PATH = re.compile(r"(?:…/)?([\w*-][\w./*-]*(?:/|\.(?:py|md|toml|yml|json|txt|ini|sql)))")
MADE_ELSEWHERE = ("invoices.py", "main.py")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_named_in_a_document_exists(document: Path) -> None:
    text = document.read_text()
    for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        assert (document.parent / link).exists(), link
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for named in filter(None, map(IS_PATH.fullmatch, re.findall(r"`([^`\n]+)`", prose))):
        path = named[1]
        if path in MADE_ELSEWHERE:
            continue
        if "*" in path:
            assert any(PurePosixPath(there).match(path) for there in PATHS), path
        else:
            assert any(f"/{there}".endswith(f"/{path}") for there in PATHS), path


def rules() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The rows of docs/rules.md: the rule, and (file, name) for each name that a cell has behind a file."""
    for part in re.split(r"^## ", (DOCS / "rules.md").read_text(), flags=re.MULTILINE)[1:]:
        below = re.search(r"^Files below (?:`(.+)`|the root of the repository)\.$", part, re.MULTILINE)
        assert below is not None, part
        for line in part.splitlines():
            if line.startswith("| ") and not line.startswith(("| rule |", "| ---")):
                rule, place = line.removeprefix("| ").removesuffix(" |").split(" | ")
                found, file = [], ""
                for code in re.findall(r"`([^`]+)`", place):
                    if code.endswith(".py"):
                        assert file in {"", *(named for named, _ in found)}, f"{file} has no name"
                        file = f"{below[1] or ''}{code}"
                    else:
                        found.append((file, code))
                assert file in {named for named, _ in found}, f"{file} has no name"
                yield rule, found


def defined(file: str) -> set[str]:
    """The names that a module defines, and the methods of its classes as `Class.method`."""
    names: set[str] = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.ClassDef):
            methods = (inner for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef))
            names |= {node.name, *(f"{node.name}.{method.name}" for method in methods)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize(("rule", "places"), [*rules()])
def test_each_rule_names_a_file_and_a_name_that_the_file_defines(rule: str, places: list[tuple[str, str]]) -> None:
    wrong = [f"{file} {name}" for file, name in places if file not in PATHS or name not in defined(file)]
    assert not wrong, rule


def test_the_picture_equals_the_output_of_its_program() -> None:
    assert draw.TARGET.read_text() == draw.picture(), "run python docs/pictures/draw.py"
    assert draw.WINDOW.read_text() == draw.window(), "run python docs/pictures/draw.py"


def test_the_picture_has_every_change_of_state() -> None:
    assert draw.LIFE.keys() == {(before.name, after.name) for before, after in TRANSITIONS}
    assert all(name in draw.STATES for change in draw.LIFE for name in change)


def test_every_alert_has_its_place_in_the_runbook() -> None:
    groups = yaml.safe_load((DOCS.parent / "monitoring" / "alerts.yml").read_text())["groups"]
    alerts = {
        rule["alert"]: rule["annotations"]["runbook"] for group in groups for rule in group["rules"] if "alert" in rule
    }
    headings = re.findall(r"^### (\w+)$", (DOCS / "monitoring.md").read_text(), re.MULTILINE)
    assert sorted(alerts) == sorted(headings)
    assert all(runbook == f"docs/monitoring.md#{alert.lower()}" for alert, runbook in alerts.items())
