"""What `topogate simulate --show` prints: the workloads as they would be stored, or what we would change of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import yaml

from webhook.patch import Operation
from webhook.simulate import Simulated
from webhook.yaml_documents import scalar

Show = Literal["objects", "patches"]


class _Dumper(yaml.CSafeDumper):
    """Writes text in quotes wherever kubectl would read something else than text, and nothing as an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write every value out: people edit what they get."""
        return True


def _text(dumper: _Dumper, value: str) -> yaml.Node:
    style = None if isinstance(scalar(value), str) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(value: Any) -> str:
    """One value as a YAML document that kubectl reads back as the same value."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def shown(simulated: Sequence[Simulated], what: Show) -> list[dict[str, Any]]:
    """The objects that would be stored (a refused workload has none), or the JSON Patch of every workload."""
    if what == "objects":
        return [dict(stored) for one in simulated for stored, _ in _objects(one) if stored is not None]
    return [
        {
            "kind": one.gang.kind,
            "namespace": one.gang.namespace,
            "name": _name(stored) or one.gang.name,
            "patch": [dict(operation) for operation in patch],
        }
        for one in simulated
        for stored, patch in _objects(one)
        if one.gang.group is None or stored is not None  # one object, one patch: with the first of its gangs
    ]


def _objects(one: Simulated) -> Sequence[tuple[Mapping[str, Any] | None, Sequence[Operation]]]:
    return ((one.stored, one.patch), *one.others)


def _name(stored: Mapping[str, Any] | None) -> str:
    """Its name; "" for what is refused because it has none."""
    metadata = stored.get("metadata") if stored is not None else None
    return str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""
