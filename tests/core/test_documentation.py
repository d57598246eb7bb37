"""The documents name everything that exists and nothing else: settings, metrics, calls, make targets, files."""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import ModuleType

import pytest
import sharequeue_coordinator.metrics
import sharequeue_coordinator.settings
import sharequeue_gateway.metrics
import sharequeue_gateway.settings
import sharequeue_share_coordinator.metrics
import sharequeue_share_coordinator.settings
import yaml
from msgspec import NODEFAULT, Struct, structs
from prometheus_client import Histogram
from prometheus_client.metrics import MetricWrapperBase
from sharequeue_gateway.leader import backlog, led_metrics, queue_series
from sharequeue_gateway.share_partition.runs import TRANSITIONS

import sharequeue.http.endpoint
import sharequeue.http.problems
import sharequeue.ownership.leases
from docs.pictures import draw
from sharequeue.protocol import apis
from sharequeue.protocol.apis import Api
from sharequeue.protocol.configs import GROUP_CONFIGS, TOPIC_CONFIGS, Config
from sharequeue.service.series import Counts

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
METRIC_MODULES = (
    sharequeue_gateway.metrics,
    sharequeue_coordinator.metrics,
    sharequeue_share_coordinator.metrics,
    sharequeue.http.endpoint,
    sharequeue.http.problems,
    sharequeue.ownership.leases,
)
PUBLIC = [api for api in vars(apis).values() if isinstance(api, Api) and not api.internal]


def section(document: str, heading: str) -> str:
    """The text below the heading that begins so, up to the next one."""
    text = (DOCS / document).read_text()
    return re.split(r"^## ", text.split(f"\n## {heading}", 1)[1], flags=re.MULTILINE)[0]


def rows(text: str) -> dict[str, list[str]]:
    """The rows of the tables in a text, by their first cell without backquotes."""
    lines = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| `")]
    return {cells[0].strip().strip("`"): [cell.strip().strip("`") for cell in cells[1:]] for cells in lines}


def shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("prefix", SETTINGS)
def test_every_setting_is_documented_with_its_default(prefix: str) -> None:
    settings: type[Struct] = SETTINGS[prefix]
    documented = next(
        rows(section("configuration.md", heading))
        for heading in ("Gateway: ", "Group coordinator: ", "Share coordinator: ")
        if f"`{prefix}…`" in (DOCS / "configuration.md").read_text().split(f"\n## {heading}")[1].splitlines()[0]
    )
    fields = {
        field.name: "" if field.default is NODEFAULT else shown(field.default) for field in structs.fields(settings)
    }
    assert {name: cells[0] for name, cells in documented.items()} == fields


def bounds(config: Config, kafka_defaults: bool) -> str:
    low, high = config.bounds(kafka_defaults)
    return f"{low}–{high}"


def test_every_group_setting_is_documented_with_defaults_and_bounds() -> None:
    documented = rows(section("configuration.md", "Group settings"))
    assert documented.keys() == GROUP_CONFIGS.keys()
    for name, config in GROUP_CONFIGS.items():
        default, within, kafka_default, kafka_within, _ = documented[name]
        assert (default, kafka_default) == (config.default or "empty", config.default_for(True) or "empty"), name
        if config.kind == "int":
            assert (within, kafka_within) == (bounds(config, False), bounds(config, True)), name


def test_every_topic_setting_is_documented_with_its_default() -> None:
    documented = rows(section("configuration.md", "Topic settings"))
    assert {name: cells[0] for name, cells in documented.items()} == {
        name: config.default for name, config in TOPIC_CONFIGS.items()
    }


def metrics_of(module: ModuleType) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Kind and labels of the metrics a module defines, by the name they were given."""
    defined = {}
    for value in vars(module).values():
        if isinstance(value, Counts):
            defined[value.name] = ("counter", tuple(value.labels))
        elif isinstance(value, MetricWrapperBase):
            kind = "histogram" if isinstance(value, Histogram) else value._type
            defined[value._name] = (kind, tuple(value._labelnames))
    return defined


def test_every_metric_is_documented_with_its_kind_and_labels() -> None:
    documented = rows((DOCS / "metrics.md").read_text())
    defined = {name: metric for module in METRIC_MODULES for name, metric in metrics_of(module).items()}
    for name, (kind, labels) in defined.items():
        assert name in documented, f"docs/metrics.md does not name {name}"
        assert documented[name][0] == kind, name
        if labels:
            assert documented[name][1] == ", ".join(labels), name
    in_flight = (led_metrics.IN_FLIGHT_RECORDS, led_metrics.IN_FLIGHT_BATCHES, led_metrics.IN_FLIGHT)
    gauges = (*in_flight, led_metrics.RECORDS, led_metrics.LIMITED, led_metrics.UNSERVED, *backlog.FAMILIES)
    of_queues = {family.removesuffix("_total") for family in queue_series.FAMILIES}
    assert documented.keys() == {*defined, *gauges, *of_queues}


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


def test_every_make_target_is_documented() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    documented = re.findall(r"^\| `make ([a-z-]+)`", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert {*documented, "help", "install"} == {*targets}


def paths() -> Iterator[str]:
    """Every path in the repository, from its root: files, and folders with a slash at the end."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        place = Path(folder).relative_to(ROOT).as_posix()
        yield from (f"{place}/{name}" for name in files)
        yield f"{place}/"


PATHS = tuple(paths())
DOCUMENTS = [ROOT / path for path in PATHS if path.endswith(".md")]
IS_PATH = re.compile(r"(?:…/)?([\w*-][\w./*-]*(?:/|\.(?:py|md|toml|yml|json|txt|ini|sql)))")
MADE_ELSEWHERE = ("OUT/report.md",)


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
