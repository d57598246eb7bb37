"""The bill of materials of a release, in the form of CycloneDX 1.6: the libraries of its extras, as installed here."""

import datetime
import re
import uuid
from collections import deque
from importlib import metadata
from typing import Any, Final

from packaging.requirements import Requirement

NAME: Final = "sharequeue"
EXTRAS: Final = ("server", "kafka", "arrow", "up", "spark")


def bill_of_materials(version: str, stamp: int) -> dict[str, Any]:
    """A document of what sharequeue pulls in with its extras. `stamp`: seconds since the epoch, of the release."""
    found: dict[str, metadata.Distribution] = {}
    edges: dict[str, set[str]] = {}
    left = deque([(NAME, frozenset(EXTRAS))])
    while left:
        name, extras = left.popleft()
        here = found[name] = metadata.distribution(name)
        for wanted in map(Requirement, here.requires or ()):
            if wanted.marker and not any(wanted.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
                continue
            other = _canonical(wanted.name)
            new = other not in edges.setdefault(name, set())
            edges[name].add(other)
            if other != NAME and (other not in found or (new and wanted.extras)):
                left.append((other, frozenset(wanted.extras)))
    del found[NAME]
    made = datetime.datetime.fromtimestamp(stamp, datetime.UTC).isoformat()
    this = {
        "type": "application",
        "bom-ref": NAME,
        "name": NAME,
        "version": version,
        "purl": f"pkg:pypi/{NAME}@{version}",
    }
    libraries = [_component(name, library) for name, library in sorted(found.items())]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, str(libraries) + version)}",
        "version": 1,
        "metadata": {"timestamp": made, "component": this},
        "components": libraries,
        "dependencies": [
            {"ref": name, "dependsOn": sorted(edges.get(name, set()) - {NAME})} for name in (NAME, *sorted(found))
        ],
    }


def _component(name: str, library: metadata.Distribution) -> dict[str, Any]:
    told = library.metadata
    classified = [
        line.rpartition(" :: ")[2] for line in told.get_all("Classifier") or () if line.startswith("License ::")
    ]
    license_name = told.get("License-Expression") or (classified or [told.get("License") or "unknown"])[0]
    license_form = (
        {"expression": license_name} if told.get("License-Expression") else {"license": {"name": license_name[:100]}}
    )
    return {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "version": library.version,
        "licenses": [license_form],
        "purl": f"pkg:pypi/{name}@{library.version}",
    }


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
