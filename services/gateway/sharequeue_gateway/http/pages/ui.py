"""The page `/ui`: shows topics, groups, records and dead letters live, and acts on them through the public API.

    /ui, /ui/topics, /ui/groups/g, …    ui/index.html, the same page for each address: ui/app.js reads the address
    /ui/app.js, /ui/ui.css, …           the files beside it; ui/vendor has those of others, with their licenses
    /ui/settings.json                   the settings of groups and topics: meaning, default, bounds

The files are open, the calls that the page makes are not: it sends the key that a person has entered. Links in the page
are relative, so that it works behind a proxy at any path: an address two levels deep begins them with `../../`.
"""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sharequeue.protocol.configs import GROUP_CONFIGS, TOPIC_CONFIGS, Configs

FILES: Final = Path(__file__).with_name("ui")
SHOWN: Final = (".js", ".css", ".svg")
VIEWS: Final = {
    "/ui": "ui/",
    "/ui/": "",
    "/ui/topics": "",
    "/ui/topics/{topic}": "../",
    "/ui/groups": "",
    "/ui/groups/{group}": "../",
    "/ui/groups/{group}/dead-letters": "../../",
    "/ui/scheduled": "",
    "/ui/transactions": "",
}
"""Each address of the page, and the way from there to its files."""


def files() -> Iterator[tuple[str, Path]]:
    """The files of the page, by their addresses."""
    for path in sorted(FILES.rglob("*")):
        if path.suffix in SHOWN:
            yield f"/ui/{path.relative_to(FILES).as_posix()}", path


def views() -> Iterator[tuple[str, bytes, str]]:
    """The page at each of its addresses."""
    page = (FILES / "index.html").read_text()
    for address, way in VIEWS.items():
        yield address, page.replace("{ui}", way).encode(), "text/html; charset=utf-8"


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


def mark(content: bytes) -> str:
    """An entity tag."""
    return f'"{zlib.crc32(content):08x}-{len(content)}"'
