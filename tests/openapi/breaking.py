"""What changed between two documents so that code made from the older one breaks. Pure.

Breaks: an operation, parameter, field, word, status or schema that is gone or has another name; something more that a
request must hold; a narrower type or bound in a request; an answer that leaves out what it always had, or has a word
that a closed enum did not list. Additions pass: new operations, schemas, optional fields of requests,
and fields of answers.
"""

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
_LOWER = ("minimum", "minLength", "minItems")
_UPPER = ("maximum", "maxLength", "maxItems", "maxProperties")


def breaking(old: Json, new: Json) -> list[str]:
    """Returns: one line for each change that breaks clients. It begins with the place, in backquotes."""
    return [*_operations(old, new), *_schemas(old, new)]


def _operations(old: Json, new: Json) -> Iterator[str]:
    now = {(path, method): operation for path, methods in new["paths"].items() for method, operation in methods.items()}
    for path, methods in old["paths"].items():
        for method, before in methods.items():
            place = before["operationId"]
            after = now.get((path, method))
            if after is None:
                yield f"`{place}`: {method.upper()} {path} is gone"
                continue
            for name in ("operationId", "tags"):
                if before[name] != after[name]:
                    yield f"`{place}`: {name} is {after[name]}, and was {before[name]}"
            yield from _parameters(place, before, after)
            yield from _contents(place, "request", before.get("requestBody", {}), after.get("requestBody", {}))
            for status, response in before["responses"].items():
                if status.startswith("2"):
                    if status not in after["responses"]:
                        yield f"`{place}`: the status {status} is gone"
                    else:
                        yield from _contents(place, "answer", response, after["responses"][status])


def _parameters(place: str, before: Json, after: Json) -> Iterator[str]:
    old = {(each["in"], each["name"]): each for each in before["parameters"]}
    new = {(each["in"], each["name"]): each for each in after["parameters"]}
    for key, parameter in old.items():
        where = f"{place}.{key[1]}"
        if key not in new:
            yield f"`{where}`: the parameter is gone"
            continue
        if new[key]["required"] and not parameter["required"]:
            yield f"`{where}`: the parameter is required now"
        yield from _narrowed(where, parameter["schema"], new[key]["schema"], asked=True)
    for key in new.keys() - old.keys():
        if new[key]["required"]:
            yield f"`{place}.{key[1]}`: the parameter is new and required"


def _contents(place: str, what: str, before: Json, after: Json) -> Iterator[str]:
    old, new = before.get("content", {}), after.get("content", {})
    if what == "request" and not old and new and after.get("required"):
        yield f"`{place}`: a body is required now"
    for media_type, content in old.items():
        if media_type not in new:
            yield f"`{place}`: the {what} is {media_type} no more"
        else:
            yield from _narrowed(
                f"{place} {what}", content["schema"], new[media_type]["schema"], asked=what == "request"
            )


def _schemas(old: Json, new: Json) -> Iterator[str]:
    requests, answers = _reached(old, "requestBody"), _reached(old, "responses")
    for name, before in old["components"]["schemas"].items():
        after = new["components"]["schemas"].get(name)
        if after is None:
            yield f"`{name}`: the schema is gone"
            continue
        if name in requests:
            yield from _narrowed(name, before, after, asked=True)
        if name in answers:
            yield from _narrowed(name, before, after, asked=False)


def _reached(document: Json, part: str) -> set[str]:
    """The schemas that the bodies of requests, or the responses, hold."""
    wanted: list[Any] = [op.get(part, {}) for path in document["paths"].values() for op in path.values()]
    if part == "responses":
        wanted.append(document["components"].get("responses", {}))
    found: set[str] = set()
    while wanted:
        value = wanted.pop()
        if isinstance(value, list):
            wanted += value
        elif isinstance(value, dict):
            reference = str(value.get("$ref", ""))
            name = reference.removeprefix("#/components/schemas/")
            if name != reference and name not in found:
                found.add(name)
                wanted.append(document["components"]["schemas"][name])
            wanted += value.values()
    return found


def _narrowed(place: str, before: Json, after: Json, *, asked: bool) -> Iterator[str]:
    """How a schema takes less than before, if it is `asked` for, or promises less, if it is answered."""
    for name in ("type", "format", "$ref"):
        if before.get(name) != after.get(name):
            yield f"`{place}`: {name} is {after.get(name)}, and was {before.get(name)}"
    words, now = before.get("enum"), after.get("enum")
    if asked and now is not None and (words is None or set(words) - set(now)):
        yield f"`{place}`: words are gone: {sorted(set(words or ()) - set(now))}"
    if not asked and words is not None and (now is None or set(now) - set(words)):
        yield f"`{place}`: an answer may have words that were not listed: {sorted(set(now or ()) - set(words))}"
    if asked:
        for name in (*_LOWER, *_UPPER):
            bound, limit = before.get(name), after.get(name)
            sign = -1 if name in _LOWER else 1
            if limit is not None and (bound is None or sign * limit < sign * bound):
                yield f"`{place}`: {name} is {limit}, and was {bound}"
        if "pattern" in after and after["pattern"] != before.get("pattern"):
            yield f"`{place}`: the pattern is {after['pattern']}, and was {before.get('pattern')}"
    yield from _properties(place, before, after, asked=asked)
    for name in ("items", "additionalProperties"):
        if isinstance(before.get(name), dict) and isinstance(after.get(name), dict):
            yield from _narrowed(f"{place}[]", before[name], after[name], asked=asked)


def _properties(place: str, before: Json, after: Json, *, asked: bool) -> Iterator[str]:
    old, new = before.get("properties", {}), after.get("properties", {})
    was, must = set(before.get("required", ())), set(after.get("required", ()))
    for name, field in old.items():
        if name not in new:
            yield f"`{place}.{name}`: the field is gone"
        else:
            yield from _narrowed(f"{place}.{name}", field, new[name], asked=asked)
    if asked:
        yield from (f"`{place}.{name}`: the field must be sent now" for name in sorted(must - was))
    else:
        yield from (f"`{place}.{name}`: the field is not always answered" for name in sorted((was - must) & new.keys()))
