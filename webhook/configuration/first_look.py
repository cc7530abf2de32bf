"""The cheap beginning of match conditions: false for nearly all objects that request nothing. Pure.

The API server evaluates the conditions for every object that the rules match, and the whole conditions search each
place where a request may be, for dozens of keys. A first look tests each key of an object once, against one pattern,
and is true for any key that a whole condition could look for. It only looks into kinds of Kubernetes' own groups: these
are many, and have a schema, so that the paths in it never fail.
"""

from __future__ import annotations

import re
from typing import Final

from engine.api import names
from engine.gang.warnings import GANG_PREFIX, GROUP_ANNOTATIONS, GROUP_LABELS, LIKE_OUR_PREFIX, WITHOUT_PREFIX
from engine.kinds.registry import Registry
from webhook.configuration.cel import text, texts

_PREFIXES: Final = ("topogate", names.KUEUE_PREFIX, names.KAI_PREFIX, names.POD_GROUP_PREFIX, GANG_PREFIX)
_WORDS: Final = ("top", "Top")  # parts of all keys that resemble a request for a level
_KEYS: Final = frozenset(
    {
        *(key for dialect in (*names.ALIASES.values(), *names.UNREAD.values()) for key in dialect),
        *names.EXCLUSIVE_TOPOLOGY,
        *GROUP_ANNOTATIONS,
        *GROUP_LABELS,
        *WITHOUT_PREFIX,
    }
)
_OTHERS: Final = sorted(
    key for key in _KEYS if not key.startswith(_PREFIXES) and not any(word in key for word in _WORDS)
)
# RE2. It is anchored, so that nearly every key fails at its first letters.
BEGINNING: Final = "^({}|{}|({})$)".format(
    "|".join(prefix.replace(".", "[.]") for prefix in _PREFIXES),
    LIKE_OUR_PREFIX.removeprefix("^"),
    "|".join(key.replace(".", "[.]") for key in _OTHERS),
)
_BEGINNING: Final = re.compile(BEGINNING)

_KEY: Final = " || ".join([*(f"k.contains({text(word)})" for word in _WORDS), f"k.matches({text(BEGINNING)})"])

# These kinds have their pod template, and claims, at the same places. A CronJob has more places, and there are few.
_GROUPS: Final = ("apps", "batch")
_KINDS: Final = frozenset({"Deployment", "Job", "StatefulSet"})


def is_looked_at(key: str) -> bool:
    """Return True if the first look is true for an object with this annotation or label, as in CEL."""
    return any(word in key for word in _WORDS) or _BEGINNING.search(key) is not None


def of_pod() -> str:
    """Return the first look at a pod's keys."""
    return f"""\
[?object.metadata.?annotations, ?object.metadata.?labels].exists(m, m.exists(k,
  {_KEY}))"""


def of_workload(registry: Registry, *, of: str = "[object, oldObject]") -> tuple[str, ...]:
    """Return the first look at a workload's keys and gates, true for other kinds; nothing if it reads no kind."""
    return _of_kinds(
        registry,
        f"""\
{of}.exists(o, o != null && (
  [?o.metadata.?annotations, ?o.metadata.?labels,
   ?o.spec.?template.?metadata.?annotations, ?o.spec.?template.?metadata.?labels].exists(m, m.exists(k,
    {_KEY})) ||
  o.spec.?template.?spec.?schedulingGates.hasValue() ||
  o.spec.?volumeClaimTemplates.hasValue()))""",
    )


def of_devices(registry: Registry) -> tuple[str, ...]:
    """Return the first look at the resources of a workload's containers, like `of_workload`."""
    return _of_kinds(
        registry,
        """\
[?object.spec.?template.?spec.?containers, ?object.spec.?template.?spec.?initContainers].exists(cs, cs.exists(c,
  [?c.?resources.?requests, ?c.?resources.?limits].exists(r, r.exists(k, k.startsWith('koordinator.sh/')))))""",
    )


def _of_kinds(registry: Registry, look: str) -> tuple[str, ...]:
    """Return `look` at the kinds of the registry that are looked into, and true for all others.

    A policy may describe other kinds of these groups, with requests in other places.
    """
    kinds = sorted({one.match.kind for one in registry.entries if one.match.group in _GROUPS} & _KINDS)
    if not kinds:
        return ()
    return (f"!(request.kind.group in {texts(_GROUPS)} && request.kind.kind in {texts(kinds)}) ||\n{look}",)
