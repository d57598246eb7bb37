"""The example of docs/pipeline.md, as it stands there but for the addresses."""

import re
from pathlib import Path
from typing import Any

from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline
from tests.pipeline.test_source import settled

DOCUMENT = Path(__file__).parents[2] / "docs" / "pipeline.md"


def test_the_example_runs(pipeline: Pipeline, gateway: Gateway, name: str, tmp_path: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[0]
    for written, meant in (
        ('.format("sharequeue")', f'.format("sharequeue").option("url", "{pipeline.url}")'),
        ('"orders"', f'"{name}-orders"'),
        ('"invoices"', f'"{name}-invoices"'),
        ('"billing"', f'"{name}"'),
        ("/tmp/billing", str(tmp_path)),
    ):
        assert written in code
        code = code.replace(written, meant)
    gateway.create_topic(f"{name}-orders")
    gateway.create_topic(f"{name}-invoices")
    gateway.produce(f"{name}-orders", {"id": 1, "total": 9.5}, key="c9")
    variables: dict[str, Any] = {}
    exec(compile(code, str(DOCUMENT), "exec"), variables)
    (record,) = gateway.read(f"{name}-invoices")["records"]
    assert record["value"] == {"order": 1, "vat": 1.9}
    assert record["key_base64"]
    assert settled(gateway, name, f"{name}-orders")
