"""docs/calls.md: the document as a page, for those who read without a tool."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_HEAD: Final = """# Every call, parameter and field

Made from the OpenAPI document; [api.md](api.md) has the rules behind them. A field marked * must be sent, or is always answered.
Any call may also answer the problems of [api.md](api.md#problems).
"""


def markdown(document: Mapping[str, Any]) -> str:
    """The page of a document: its calls by tag, then the schemas."""
    parts = [_HEAD]
    for tag in document["tags"]:
        parts.append(f"\n## {tag['name']}\n\n{tag['description']}\n")
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if operation["tags"] == [tag["name"]]:
                    parts.append(f"\n### {operation['operationId']}\n\n`{method.upper()} {path}`\n\n")
                    parts.append("\n".join(_operation(operation)))
    parts.append("\n## Schemas\n")
    for name, schema in document["components"]["schemas"].items():
        parts.append(f"\n### {name}\n\n{schema['description']}\n")
        rows = list(_rows(schema))
        if rows:
            parts.append("\n| field | type | meaning |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n")
        words = schema.get("enum") or schema.get("x-extensible-enum")
        if words:
            parts.append("\n" + ", ".join(f"`{word}`" for word in words) + "\n")
    return "".join(parts)


def _operation(operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"{operation['summary']}. {operation['description']}\n"
    if operation["parameters"]:
        yield "| parameter | in | type | meaning |\n| --- | --- | --- | --- |"
        for each in operation["parameters"]:
            star = "*" if each["required"] else ""
            yield f"| `{each['name']}`{star} | {each['in']} | {_type(each['schema'])} | {_cell(each['description'])} |"
        yield ""
    for body in operation.get("requestBody", {}).get("content", {}).values():
        yield f"Body: {_type(body['schema'])}\n"
    yield "| status | body | meaning |\n| --- | --- | --- |"
    for status, response in operation["responses"].items():
        if "$ref" not in response:
            types = [_type(body["schema"]) for body in response.get("content", {}).values()]
            yield f"| {status} | {', '.join(types)} | {_cell(response['description'])} |"
    yield ""


def _rows(schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        star = "*" if name in required else ""
        yield f"| `{name}`{star} | {_type(field)} | {_cell(field['description'])} |"


def _type(schema: Mapping[str, Any]) -> str:
    """A type in a word or two, with a link to its schema."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(choice) for choice in schema["anyOf"])
    kind = schema.get("type", "any JSON")
    if kind == "array":
        return f"array of {_type(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return f"{kind} ({schema['format']})" if "format" in schema else str(kind)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
