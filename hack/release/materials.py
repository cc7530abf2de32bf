"""The bill of materials (CycloneDX 1.6): every package of the lock that the image installs, with its hashes.

With the image also the Debian packages of its base. What hack/image/trim.py takes out again is named as excluded.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hack.image import trim
from hack.image.base import PYTHON
from hack.plugin.platforms import PLATFORMS
from hack.release.project import Source

_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_NAMESPACE: Final = uuid.UUID("6b2f2a3e-5d0c-5c3b-9a5e-0d9e6f6b7a11")  # of our serial numbers; any will do
_MAJOR, _MINOR = PYTHON.removeprefix("python").split(".")
# Values that no requirement of ours asks for are those of no machine.
IMAGE: Final[dict[str, str]] = {
    "platform_release": "",
    "platform_version": "",
    **PLATFORMS["linux/amd64"].markers((int(_MAJOR), int(_MINOR))),
}


@dataclass(frozen=True, slots=True)
class Locked:
    """One package of a lock."""

    name: str
    version: str
    hashes: tuple[str, ...]


def locked_packages(lock: str) -> Iterator[Locked]:
    """Yield the packages that a requirements lock installs in the image."""
    for entry in lock.replace("\\\n", " ").splitlines():
        head = entry.split(" --hash=")[0].strip()
        if not head or head.startswith("#"):
            continue
        requirement = Requirement(head)
        if requirement.marker is None or requirement.marker.evaluate(IMAGE):
            (pinned,) = requirement.specifier
            yield Locked(canonicalize_name(requirement.name), pinned.version, tuple(_HASH.findall(entry)))


def bill_of_materials(source: Source, *, lock: str, debian: Sequence[tuple[str, str]] = (), image: str = "") -> str:
    """Return the document; equal sources make equal text. `image` is the digest of the image, if there is one."""
    bom = Bom()
    bom.metadata.timestamp = datetime.fromtimestamp(source.epoch, UTC)
    bom.metadata.component = Component(
        name="topogate",
        version=source.version,
        type=ComponentType.CONTAINER,
        bom_ref="topogate",
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
        hashes=_hashes([image.removeprefix("sha256:")] if image else ()),
        properties=[Property(name="topogate:commit", value=source.commit)],
    )
    excluded = {canonicalize_name(name) for name in trim.DISTRIBUTIONS}
    components = [_python(package, excluded=package.name in excluded) for package in locked_packages(lock)]
    components += [_debian(name, version) for name, version in debian]
    bom.components.update(components)
    bom.register_dependency(bom.metadata.component, components)
    content = "\n".join(sorted(str(one.bom_ref) for one in components)) + source.version + source.commit + image
    bom.serial_number = uuid.uuid5(_NAMESPACE, hashlib.sha256(content.encode()).hexdigest())
    return str(JsonV1Dot6(bom).output_as_string(indent=2)) + "\n"


def _python(package: Locked, *, excluded: bool) -> Component:
    address = PackageURL("pypi", name=package.name, version=package.version)
    # The lock has the hashes of all files of a version, one for each platform: which one was taken is not known here.
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(str(address)),
        hashes=_hashes(package.hashes),
        comment="the files that requirements.lock allows",
    )
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=str(address),
        purl=address,
        scope=ComponentScope.EXCLUDED if excluded else ComponentScope.REQUIRED,
        external_references=[files],
    )


def _debian(name: str, version: str) -> Component:
    address = PackageURL("deb", namespace="debian", name=name, version=version)
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=str(address),
        purl=address,
        scope=ComponentScope.REQUIRED,
    )


def _hashes(values: Iterable[str]) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=value) for value in values]
