"""Workload kinds as data: where their pods are described, how many, which rank a pod has, how the workload is held.

Pure: an object goes in as a mapping, frozen records come out; no I/O, no code per kind. `kinds.yaml` holds the
built-ins, a policy adds entries of the same schema.

`registry_of` is the way in for entries, `read` for objects, `rules` for what the manifests grant. Behind them: `paths`,
`fields`, `conditions`, `expressions` (the tiny language of entries), `schema` and `checks` (what an entry may be),
`structure` (the records), `podsets` and `contained` (the parts of reading). Not here: which kinds are watched, and what
is done with a gang.
"""

from engine.kinds.access import Rules, label_keys, rules
from engine.kinds.registry import Registry, RegistryError, built_in, registry_of
from engine.kinds.schema import KindEntry
from engine.kinds.structure import Gang, PodSet, Structure, Suspension
from engine.kinds.workload import UnreadableWorkload, read

__all__ = [
    "Gang",
    "KindEntry",
    "PodSet",
    "Registry",
    "RegistryError",
    "Rules",
    "Structure",
    "Suspension",
    "UnreadableWorkload",
    "built_in",
    "label_keys",
    "read",
    "registry_of",
    "rules",
]
