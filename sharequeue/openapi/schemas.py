"""The schemas of messages as code generators like them, from the types that encode and decode the messages.

- An optional field is absent, not null: `anyOf: [X, null]` becomes X. Of answers only a record's key may be null.
- A field has no `default`, since generators take it for one that is always there. Its description says the default, or
  when an answer leaves the field out.
- A word that has a title becomes a component of that name.
- Every integer has a range: its own, or its format's. Every list has a bound: its own, or as many entries as an
  int32 counts.
"""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from sharequeue.openapi.field_texts import field_texts
from sharequeue.protocol.types import MAX_INT32, MAX_INT64

REFERENCE: Final = "#/components/schemas/{name}"
_NULL: Final = {"type": "null"}
_NULLABLE: Final = frozenset((struct, "key") for struct in ("ConsumerRecord", "ScheduleDescription"))
_RANGES: Final = {"int32": (-(2**31), MAX_INT32), "int64": (-(2**63), MAX_INT64)}


class Schemas:
    """All schemas of a document. `components`: by name, complete when each type was referred to."""

    def __init__(self, requests: Iterable[Any], answers: Iterable[Any]) -> None:
        """`requests`: the types of all bodies. `answers`: those of all answers."""
        self._of_requests = msgspec.json.schema_components(list(requests))[1].keys()
        types = (*requests, *answers)
        distinct = list({repr(part): part for part in types}.values())
        schemas, named = msgspec.json.schema_components(distinct, ref_template=REFERENCE)
        classes = {kind.__name__: kind for kind in _classes(msgspec.inspect.multi_type_info(distinct))}
        self.components: dict[str, Any] = {}
        self._references: dict[str, dict[str, Any]] = {}
        for name, schema in named.items():
            self.components[name] = self._component(schema, classes[name])
        for part, schema in zip(distinct, schemas, strict=True):
            if "$ref" in schema:
                self._references[repr(part)] = schema
            else:
                self.components[schema["title"]] = self.part(schema)
                self._references[repr(part)] = {"$ref": REFERENCE.format(name=schema["title"])}

    def reference(self, kind: Any) -> dict[str, Any]:
        return self._references[repr(kind)]

    def text(self, kind: Any) -> str:
        """The first paragraph of a type's description."""
        name = self.reference(kind)["$ref"].rsplit("/", 1)[1]
        description: str = self.components[name].get("description", "")
        return " ".join(description.partition("\n\n")[0].split())

    def parameters(self, query: type[msgspec.Struct]) -> Iterator[dict[str, Any]]:
        """The fields of a query. Parameters keep their defaults: no generator takes those for always there."""
        schema = msgspec.json.schema_components([query])[1][query.__name__]
        texts = field_texts(query)
        for name, field in schema["properties"].items():
            plain = {key: value for key, value in _present(field).items() if key != "default" or value is not None}
            text = texts.get(name, "" if "title" in plain else plain.pop("description", ""))
            yield {
                "name": name,
                "in": "query",
                "required": name in schema.get("required", []),
                **({"description": text} if text else {}),
                "schema": self.part(plain),
            }

    def _component(self, schema: Mapping[str, Any], kind: type[Any]) -> dict[str, Any]:
        component = dict(schema)
        if "description" in component:
            component["description"] = inspect.cleandoc(component["description"])
        if not component.get("required", True):
            del component["required"]
        if "properties" in component:
            texts = field_texts(kind)
            component["properties"] = {
                name: _field(
                    field, texts.get(name), kind.__name__ in self._of_requests, (kind.__name__, name) in _NULLABLE
                )
                for name, field in component["properties"].items()
            }
        portable: dict[str, Any] = self.part(component, top=True)
        return portable

    def part(self, schema: Any, top: bool = False) -> Any:
        """A schema, or a part of one, as all dialects and generators know it. `top`: it is a component itself."""
        if isinstance(schema, list):
            return [self.part(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        portable = {
            name: _pattern(value) if name == "pattern" and isinstance(value, str) else self.part(value)
            for name, value in schema.items()
        }
        if isinstance(schema.get("enum"), list):
            portable = {"type": "string", **portable}
        if portable.get("type") == "integer" and portable.get("format") in _RANGES:
            low, high = _RANGES[portable["format"]]
            portable = {**portable, "minimum": portable.get("minimum", low), "maximum": portable.get("maximum", high)}
        if portable.get("type") == "array":
            portable.setdefault("maxItems", MAX_INT32)
        return portable if top else self._named(portable)

    def _named(self, schema: dict[str, Any]) -> dict[str, Any]:
        """A reference to the component of a word's title. What the field says beside the word stays beside it."""
        if schema.get("type") != "string" or "title" not in schema:
            return schema
        name = schema["title"]
        beside = {"default": schema["default"]} if "default" in schema else {}
        if "x-field" in schema:
            beside["description"] = schema["x-field"]
        self.components[name] = {key: value for key, value in schema.items() if key not in ("x-field", "default")}
        return {"$ref": REFERENCE.format(name=name), **beside}


def _pattern(pattern: str) -> str:
    """A pattern as all dialects read it. Only Python needs `\\Z` at the end, as its `$` allows a newline. The control
    characters above ASCII are left to the service: Ruby refuses their range, and PHP matches bytes of UTF-8 with it."""
    return re.sub(r"\\Z$", "$", pattern).replace(r"\x7f-\x9f", r"\x7f")


def _field(field: Mapping[str, Any], text: str | None, of_request: bool, nullable: bool) -> dict[str, Any]:
    described = dict(field) if nullable else _present(field)
    default = described.pop("default", None)
    said = _in_words(default, of_request)
    text = text or (None if "title" in described else described.get("description"))
    if text or said:
        whole = " ".join(part for part in (text, said) if part)
        described["x-field" if "title" in described else "description"] = whole
    return described


def _in_words(default: Any, of_request: bool) -> str:
    """Return what the absence of a field means; nothing if its text says that."""
    if default is None or (of_request and default in ([], {})):
        return ""
    value = default if isinstance(default, str) else msgspec.json.encode(default).decode()
    if of_request:
        return f"Default: {value}."
    return "Absent if empty." if default in ([], {}) else f"Absent if {value}."


def _present(field: Mapping[str, Any]) -> dict[str, Any]:
    """An optional field is absent, not null: `anyOf: [X, null]` becomes X."""
    rest = dict(field)
    choices = rest.pop("anyOf", None)
    if choices is None:
        return rest
    kept = [choice for choice in choices if choice != _NULL]
    return {**kept[0], **rest} if len(kept) == 1 else {"anyOf": kept, **rest}


def _classes(parts: Any, seen: set[type[Any]] | None = None) -> Iterator[type[Any]]:
    """The classes of all structs and enums inside of types."""
    seen = set() if seen is None else seen
    for part in parts:
        if isinstance(part, msgspec.inspect.StructType | msgspec.inspect.EnumType):
            if part.cls in seen:
                continue
            seen.add(part.cls)
            yield part.cls
            if isinstance(part, msgspec.inspect.StructType):
                yield from _classes((field.type for field in part.fields), seen)
        elif isinstance(part, msgspec.inspect.Metadata):
            yield from _classes([part.type], seen)
        elif isinstance(part, msgspec.inspect.UnionType):
            yield from _classes(part.types, seen)
        elif isinstance(part, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
            yield from _classes([part.item_type], seen)
        elif isinstance(part, msgspec.inspect.DictType):
            yield from _classes([part.value_type], seen)
