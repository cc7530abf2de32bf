"""Turns the zone labels of a PersistentVolume into node selector terms.

kube-scheduler reads these labels as well as the node affinity of a volume. A volume that was written by hand, or made
by an old in-tree driver, may have the labels alone.
Source: docs/contributor/kubernetes-facts.md, scheduler and nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Final

from engine.api.pod import SelectorRequirement, SelectorTerm
from engine.topology.levels import ZONE

_REGION: Final = "topology.kubernetes.io/region"
# The deprecated names, with those that take their place on a node that lacks them.
_SUCCESSORS: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": _REGION,
}
_LABELS: Final = (ZONE, _REGION, *_SUCCESSORS)
_SEPARATOR: Final = "__"  # between the zones of a volume that is in several
_UNZONED: Final = tuple(SelectorRequirement(key=key, operator="DoesNotExist", values=()) for key in _LABELS)

_Requirements = tuple[SelectorRequirement, ...]


def zone_terms(
    labels: Mapping[str, str | None], affinity: tuple[SelectorTerm, ...] | None
) -> tuple[SelectorTerm, ...] | None:
    """Return the terms that nodes must match for a volume: its node affinity and its zone labels. None: any node.

    A node without any zone label reaches every volume.
    """
    affinity = _of_labels(affinity)
    wanted = [_alternatives(key, zones) for key in _LABELS if (zones := _zones(labels.get(key)))]
    if not wanted:
        return affinity
    zoned = [*(tuple(one for part in parts for one in part) for parts in product(*wanted)), _UNZONED]
    if affinity is None:
        return tuple(SelectorTerm(expressions=one, fields=()) for one in zoned)
    # An empty term matches no node, and has to stay empty for that.
    terms = [term.expressions for term in affinity if term.expressions]
    return tuple(SelectorTerm(expressions=(*term, *one), fields=()) for term in terms for one in zoned)


def _of_labels(affinity: tuple[SelectorTerm, ...] | None) -> tuple[SelectorTerm, ...] | None:
    """Return the terms of a volume without their fields. None: any node.

    The scheduler compares them with labels alone (`CheckNodeAffinity`), so that a term of fields only always matches.
    """
    if affinity is None or any(term.fields and not term.expressions for term in affinity):
        return None
    return tuple(SelectorTerm(expressions=term.expressions, fields=()) for term in affinity)


def _alternatives(key: str, zones: tuple[str, ...]) -> list[_Requirements]:
    """Return the ways in which a node that has zone labels can match one label of a volume."""
    found: list[_Requirements] = [(SelectorRequirement(key=key, operator="In", values=zones),)]
    if successor := _SUCCESSORS.get(key):
        found.append(
            (
                SelectorRequirement(key=key, operator="DoesNotExist", values=()),
                SelectorRequirement(key=successor, operator="In", values=zones),
            )
        )
    return found


def _zones(value: str | None) -> tuple[str, ...]:
    """Return the zones in a label's value; none if one of them is empty, because the scheduler ignores such a label."""
    found = tuple(dict.fromkeys(part.strip() for part in (value or "").split(_SEPARATOR)))
    return () if "" in found else found
