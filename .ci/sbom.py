"""A bill of materials in CycloneDX's JSON: shoal and all that an installation of its wheel brings, with versions,
licences and who needs whom, by the metadata of what is installed here.

`make package` writes it beside the wheel: `python .ci/sbom.py WHEEL` does that alone.
"""

import hashlib
import json
import re
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement

NAME, EXTRA = "shoal", "report"  # what a user installs
SERIAL = re.compile(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PURL = re.compile(r"pkg:pypi/[a-z0-9][a-z0-9-]*@[^@/]+")


def normal(name: str) -> str:
    """A name as the index of Python packages writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(name: str, extras: tuple[str, ...] = ()) -> list[str]:
    """The packages that one needs here, with some of its extras; one that is not installed is an error."""
    found = set()
    for line in metadata.requires(name) or ():
        wanted = Requirement(line)
        marker = wanted.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found.add(normal(wanted.name))
    return sorted(found)


def reached() -> dict[str, list[str]]:
    """All packages that shoal brings, and whom each of them needs."""
    found: dict[str, list[str]] = {}
    left = [NAME]
    while left:
        one = left.pop()
        if one not in found:
            found[one] = needs(one, (EXTRA,) if one == NAME else ())
            left += found[one]
    return dict(sorted(found.items()))


def ref(name: str) -> str:
    """The address of an installed package; what a build adds to its version (as torch's `+cpu`) is part of it."""
    return f"pkg:pypi/{name}@{metadata.version(name).replace('+', '%2B')}"


def component(name: str) -> dict[str, Any]:
    """A package as a component."""
    about = metadata.metadata(name)
    licence = about.get("License-Expression") or about.get("License") or ""
    if not licence or "\n" in licence:  # some put the whole text there
        classes = [one.rpartition(" :: ")[2] for one in about.get_all("Classifier") or () if one.startswith("License")]
        licence = " and ".join(classes) or licence.partition("\n")[0]
    found: dict[str, Any] = {
        "type": "application" if name == NAME else "library",
        "bom-ref": ref(name),
        "name": about["Name"],
        "version": metadata.version(name),
        "purl": ref(name),
    }
    return found | ({"licenses": [{"license": {"name": licence.strip()}}]} if licence.strip() else {})


def bill(wheel: Path) -> dict[str, Any]:
    """The bill of materials of a wheel. The same wheel with the same packages has the same serial number."""
    digest, every = hashlib.sha256(wheel.read_bytes()).hexdigest(), reached()
    parts = [component(name) for name in every if name != NAME]
    main = component(NAME) | {"hashes": [{"alg": "SHA-256", "content": digest}]}
    serial = uuid5(NAMESPACE_URL, " ".join([digest, *(part["purl"] for part in parts)]))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "component": main},
        "components": parts,
        "dependencies": [
            {"ref": ref(name), "dependsOn": [ref(one) for one in needed]} for name, needed in every.items()
        ],
    }


def check(found: dict[str, Any]) -> None:
    """Raise if a bill is not what CycloneDX 1.6 asks for, or does not hold together."""
    required = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1}
    assert {name: found.get(name) for name in required} == required
    assert SERIAL.fullmatch(found["serialNumber"]), found["serialNumber"]
    whole = [found["metadata"]["component"], *found["components"]]
    refs = [one["bom-ref"] for one in whole]
    assert len(refs) == len(set(refs)), "two components have one address"
    for one in whole:
        assert one["type"] in ("application", "library"), one
        assert one["name"], one
        assert one["version"], one
        assert PURL.fullmatch(one["purl"]), one["purl"]
        for licence in one.get("licenses", ()):
            assert licence["license"]["name"], one
    (digest,) = found["metadata"]["component"]["hashes"]
    assert re.fullmatch("[0-9a-f]{64}", digest["content"]), digest
    assert {one["ref"] for one in found["dependencies"]} == set(refs)
    assert {to for one in found["dependencies"] for to in one["dependsOn"]} <= set(refs)


def write(wheel: Path) -> Path:
    """Put the bill of a wheel beside it."""
    found = bill(wheel)
    check(found)
    place = wheel.with_name(f"{wheel.name.removesuffix('.whl')}.cdx.json")
    place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return place


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
