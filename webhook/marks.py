"""Our marks on an object: the gate, labels and annotations that only we write, put on and taken off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine import names
from engine.records import PodSpec
from engine.requests import MAIN
from webhook.patch import Edits, Path

ANNOTATIONS: Final = (names.HELD_BY, names.PLACEMENT, names.REVISION, names.DOMAIN_PATH, names.RANK)
LABELS: Final = (names.MANAGED, names.POD_SET, names.GANG)
TEMPLATE_LABELS: Final[Mapping[str, str]] = {names.MANAGED: "true", names.POD_SET: MAIN}
TEMPLATE: Final[Path] = ("spec", "template")


def gate_on(edits: Edits, root: Path = ()) -> None:
    """Put our gate on the pod or template at `root`, beside those of others; one that is there stays where it is."""
    if not any(map(_ours, edits.get(*root, "spec", "schedulingGates") or ())):
        edits.append((*root, "spec", "schedulingGates"), {"name": names.GATE})


def gate_off(edits: Edits, root: Path = ()) -> None:
    """Take our gate off, and nobody else's."""
    edits.drop_items((*root, "spec", "schedulingGates"), _ours)


def mark(edits: Edits, root: Path = ()) -> None:
    """Mark the pod or template at `root` as one that we hold: gate and labels."""
    label(edits, root)
    gate_on(edits, root)


def label(edits: Edits, root: Path = ()) -> None:
    """Label the pod or template at `root` as a managed one."""
    for key, value in TEMPLATE_LABELS.items():
        edits.put((*root, "metadata", "labels", key), value)


def drop_annotations(edits: Edits, root: Path = (), *, keep: tuple[str, ...] = ()) -> None:
    """Take our annotations off the object at `root`."""
    for key in ANNOTATIONS:
        if key not in keep:
            edits.drop((*root, "metadata", "annotations", key))


def drop_labels(edits: Edits, root: Path = (), *, keep: tuple[str, ...] = ()) -> None:
    """Take our labels off the object at `root`."""
    for key in LABELS:
        if key not in keep:
            edits.drop((*root, "metadata", "labels", key))


def drop_all(edits: Edits, root: Path = ()) -> None:
    """Take everything of ours off the pod or template at `root`."""
    drop_annotations(edits, root)
    drop_labels(edits, root)
    gate_off(edits, root)


def marked(spec: PodSpec) -> bool:
    """True when a template or pod carries exactly the marks that `mark` puts on."""
    return names.GATE in spec.gates and all(spec.labels.get(key) == value for key, value in TEMPLATE_LABELS.items())


def _ours(gate: object) -> bool:
    return isinstance(gate, Mapping) and gate.get("name") == names.GATE
