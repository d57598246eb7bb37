"""The page `/ui`: shows topics, groups, records and dead letters live, and acts on them through the public API.

    /ui, /ui/topics, /ui/groups/g, …    ui/index.html, the same page for each address: ui/app.js reads the address
    /ui/app.js, /ui/ui.css, …           the files beside it; ui/vendor has those of others, with their licenses
    /ui/settings.json                   the settings of groups and topics: meaning, default, bounds

The files are open, the calls that the page makes are not: it sends the key that a person has entered. Links in the page
are relative, so that it works behind a proxy at any path: an address two levels deep begins them with `../../`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sharequeue.protocol.configs import GROUP_CONFIGS, TOPIC_CONFIGS, Configs

FILES: Final = Path(__file__).with_name("ui")
HTML: Final = "text/html; charset=utf-8"
KINDS: Final = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
VIEWS: Final = (
    *("/ui", "/ui/", "/ui/topics", "/ui/topics/{topic}", "/ui/groups", "/ui/groups/{group}"),
    *("/ui/groups/{group}/dead-letters", "/ui/scheduled", "/ui/transactions"),
)


def contents(kafka_defaults: bool) -> Iterator[tuple[str, bytes, str]]:
    """Yield each address with its bytes and their content type."""
    page = (FILES / "index.html").read_text()
    for view in VIEWS:
        way = "ui/" if view == "/ui" else "../" * (view.count("/") - 2)
        yield view, page.replace("{ui}", way).encode(), HTML
    for path in FILES.rglob("*"):
        if path.suffix in KINDS:
            yield f"/ui/{path.relative_to(FILES).as_posix()}", path.read_bytes(), KINDS[path.suffix]
    yield "/ui/settings.json", settings(kafka_defaults), "application/json"


def settings(kafka_defaults: bool) -> bytes:
    """The settings of groups and topics as JSON: what the page shows beside their values."""

    def of(configs: Configs) -> dict[str, object]:
        return {
            config.name: {
                "kind": config.kind,
                "meaning": config.doc,
                "default": config.default_for(kafka_defaults),
                "bounds": config.bounds(kafka_defaults) if config.kind == "int" else None,
                "choices": config.choices or (("true", "false") if config.kind == "bool" else None),
                "form": config.form,
            }
            for config in configs.values()
        }

    return json.dumps({"group": of(GROUP_CONFIGS), "topic": of(TOPIC_CONFIGS)}, ensure_ascii=False).encode()
