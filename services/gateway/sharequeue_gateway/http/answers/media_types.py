"""The media types that a request accepts: its header Accept as weights."""

import re
from typing import Final

_WEIGHT: Final = re.compile(r"[01](\.[0-9]{0,3})?")


def prefers(accept: str | None, kind: str, *others: str) -> bool:
    """Return whether an Accept header names a media type, and gives each of the others less weight: generated clients
    name every type that they know with the same weight, and can read JSON alone."""
    weights = qualities(accept or "")
    return weights.get(kind, 0.0) > max(weights.get(other, 0.0) for other in others)


def qualities(accept: str) -> dict[str, float]:
    """The media types of an Accept header, in lower case, with their weights; an invalid weight counts as 0."""
    found = {}
    for entry in accept.lower().split(","):
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                weight = parameter.removeprefix("q=")
                quality = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
        found[media_type] = quality
    return found
