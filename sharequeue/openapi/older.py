"""The document in the words of OpenAPI 3.0, for generators that know no newer one."""

from collections.abc import Mapping
from typing import Any, Final

_NULL: Final = {"type": "null"}


def to_3_0(current: Mapping[str, Any]) -> dict[str, Any]:
    converted: dict[str, Any] = _converted(current)
    converted["openapi"] = "3.0.3"
    return converted


def _converted(value: Any) -> Any:
    if isinstance(value, list):
        return [_converted(item) for item in value]
    if not isinstance(value, dict):
        return value
    converted = {name: item if name in ("example", "value") else _converted(item) for name, item in value.items()}
    choices = converted.get("anyOf")
    if isinstance(choices, list) and _NULL in choices:
        kept = [choice for choice in choices if choice != _NULL]
        del converted["anyOf"]
        converted.update({"nullable": True}, **(kept[0] if len(kept) == 1 else {"anyOf": kept}))
    if "const" in converted:
        converted["enum"] = [converted.pop("const")]
    if "$ref" in converted and len(converted) > 1:
        return {"allOf": [{"$ref": converted.pop("$ref")}], **converted}
    return converted
