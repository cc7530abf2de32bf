"""Discovers the registry's kinds and their owners that the API server serves, and their versions.

Kinds of Kubernetes' own groups are always served. For the others one `GET /apis` lists the groups, and one list per
version of a group that concerns us its kinds. Where a request fails, the last known answer stays.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.cluster.client import ApiFault, ApiUnavailable, KubeClient, get_or_none, object_path
from engine.decoding.wire import UNREADABLE
from engine.kinds.registry import Registry
from engine.kinds.schema import ANY_VERSION

TIMEOUT: Final = (5.0, 10.0)
WATCHED: Final = frozenset({"placed", "through"})
_FIXED: Final[Mapping[str, str]] = {"": "v1", "apps": "apps/v1", "batch": "batch/v1"}
_PLURALS: Final[Mapping[tuple[str, str], str]] = {("apps", "ReplicaSet"): "replicasets"}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A kind to look for: the versions that entries name, in their order, and whether any other version will do.

    `resource` is "" where only the kind is known. `registered`: its objects are read as workloads; else only as links
    to one.
    """

    group: str
    kind: str
    versions: tuple[str, ...]
    any_version: bool
    resource: str
    registered: bool


@dataclass(frozen=True, slots=True)
class Collection:
    """A kind as the API server serves it; `short_names` are other names of it, as kubectl takes them."""

    group: str
    kind: str
    version: str
    resource: str
    registered: bool
    short_names: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """Group and version, as in objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """The URL path of all its objects."""
        return object_path(self.api_version, self.resource)

    @property
    def name(self) -> str:
        """The plural with its group, as in a CustomResourceDefinition's name; Kubernetes' own by the plural alone."""
        return self.resource if self.group in _FIXED else f"{self.resource}.{self.group}"


def wanted_kinds(registry: Registry) -> tuple[Wanted, ...]:
    """Return the kinds of a registry to watch: those that are placed, and those between them and their pods.

    Pods are watched anyhow; a kind that only creates placed ones (CronJob) need not be watched.
    """
    found: dict[tuple[str, str], Wanted] = {}
    for entry in registry.entries:
        if entry.handling not in WATCHED:
            continue
        key = (entry.match.group, entry.match.kind)
        before = found.get(key)
        named = (*(before.versions if before else ()), *(one for one in entry.match.versions if one != ANY_VERSION))
        any_version = (before is not None and before.any_version) or ANY_VERSION in entry.match.versions
        found[key] = Wanted(*key, named, any_version, entry.match.resource, registered=True)
    for entry in registry.entries:
        for owner in entry.owners:
            key = (owner.group, owner.kind)
            if key != ("", "Pod") and key not in found:
                found[key] = Wanted(*key, (), any_version=True, resource=_PLURALS.get(key, ""), registered=False)
    return tuple(found.values())


class _Version(msgspec.Struct):
    version: str = ""


class _Group(msgspec.Struct, rename="camel"):
    name: str = ""
    versions: list[_Version] = []
    preferred_version: _Version | None = None


class _Groups(msgspec.Struct):
    groups: list[_Group] | None = None


class _Resource(msgspec.Struct, rename="camel"):
    name: str = ""
    kind: str = ""
    verbs: list[str] | None = None
    singular_name: str = ""
    short_names: list[str] | None = None

    @property
    def others(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.singular_name, *(self.short_names or ()))))


class _Resources(msgspec.Struct):
    resources: list[_Resource] | None = None


_decode_groups: Final = msgspec.json.Decoder(_Groups).decode
_decode_resources: Final = msgspec.json.Decoder(_Resources).decode


class Discovery:
    """Discovers the kinds that one API server serves; not for use by several threads at once."""

    def __init__(self, api: KubeClient) -> None:
        self._api = api
        self._known: dict[tuple[str, str], Collection] = {}

    def look(self, wanted: Iterable[Wanted]) -> tuple[Collection, ...]:
        """Return the wanted kinds that are served now. Raises ApiFault when the groups cannot be listed."""
        wanted = tuple(wanted)
        groups: Mapping[str, tuple[str, ...]] = {}
        if any(one.group not in _FIXED for one in wanted):
            groups = self._groups()
        found: dict[tuple[str, str], Collection] = {}
        asked: dict[str, dict[str, _Resource] | None] = {}
        for one in wanted:
            key = (one.group, one.kind)
            if one.group in _FIXED:
                collection = _fixed(one)
            else:
                try:
                    collection = self._served(one, groups.get(one.group, ()), asked)
                except ApiFault:
                    collection = self._known.get(key)
            if collection is not None:
                found[key] = collection
        self._known = found
        return tuple(found.values())

    def _groups(self) -> Mapping[str, tuple[str, ...]]:
        """Return the versions of every group, the preferred one first."""
        try:
            answer = _decode_groups(self._api.request("GET", "/apis", timeout=TIMEOUT))
        except UNREADABLE as error:
            raise ApiUnavailable(f"GET /apis: not a list of groups: {error}") from None
        return {group.name: _versions(group) for group in answer.groups or ()}

    def _served(
        self, one: Wanted, versions: tuple[str, ...], asked: dict[str, dict[str, _Resource] | None]
    ) -> Collection | None:
        for version in _in_order(one, versions):
            kinds = self._kinds(f"{one.group}/{version}", asked)
            found = next(
                (found for found in kinds.values() if found.kind == one.kind and one.resource in ("", found.name)), None
            )
            if found is not None:
                return Collection(one.group, one.kind, version, found.name, one.registered, found.others)
        return None

    def _kinds(self, api_version: str, asked: dict[str, dict[str, _Resource] | None]) -> dict[str, _Resource]:
        """Return plural -> kind of everything in a version that can be watched; requested once per discovery."""
        if api_version not in asked:
            asked[api_version] = None
            try:
                asked[api_version] = self._ask(api_version)
            except ApiFault as fault:
                _log.warning("the kinds of %s are not known at the moment: %s", api_version, fault)
        kinds = asked[api_version]
        if kinds is None:
            raise ApiUnavailable(f"{api_version} could not be asked")
        return kinds

    def _ask(self, api_version: str) -> dict[str, _Resource]:
        path = f"/apis/{api_version}"
        body = get_or_none(self._api, path, timeout=TIMEOUT)
        if body is None:
            return {}
        try:
            answer = _decode_resources(body)
        except UNREADABLE as error:
            raise ApiUnavailable(f"GET {path}: not a list of kinds: {error}") from None
        return {one.name: one for one in answer.resources or () if "/" not in one.name and _watchable(one)}


def _versions(group: _Group) -> tuple[str, ...]:
    first = group.preferred_version.version if group.preferred_version is not None else ""
    return tuple(sorted((one.version for one in group.versions), key=lambda version: version != first))


def _fixed(one: Wanted) -> Collection | None:
    version = _FIXED[one.group].rpartition("/")[2]
    if not one.resource or not (one.any_version or version in one.versions):
        return None
    return Collection(one.group, one.kind, version, one.resource, one.registered)


def _in_order(one: Wanted, served: tuple[str, ...]) -> Iterator[str]:
    """Yield the versions to look in: those that entries name, then the other served ones, the preferred one first."""
    yield from (version for version in one.versions if version in served)
    if one.any_version:
        yield from (version for version in served if version not in one.versions)


def _watchable(one: _Resource) -> bool:
    return one.verbs is None or {"list", "watch"} <= set(one.verbs)
