"""The cheap beginning of match conditions: false for nearly all objects that request nothing. Pure.

The API server evaluates the conditions for every object that the rules match, and the whole conditions search each
place where a request may be, for dozens of keys. A first look tests each key of an object once, and is true for any key
that a whole condition could look for. It only looks into kinds of Kubernetes' own groups: these are many, and have a
schema, so that the paths in it never fail.
"""

from __future__ import annotations

import re
from typing import Final

from engine.api import names
from engine.gang.warnings import GROUP_ANNOTATIONS, GROUP_LABELS, WITHOUT_PREFIX
from engine.kinds.registry import Registry
from webhook.configuration.cel import text, texts

# Parts of all keys that resemble a request for a level, and of all that begin with our name.
_WORDS: Final = ("top", "Top")
# Exact keys, as far as no other part of the look is true for them.
_KEYS: Final = frozenset(
    {
        *(key for dialect in (*names.ALIASES.values(), *names.UNREAD.values()) for key in dialect),
        *names.EXCLUSIVE_TOPOLOGY,
        *GROUP_ANNOTATIONS,
        *GROUP_LABELS,
        *WITHOUT_PREFIX,
    }
)
# RE2: the first letters of all prefixes that are looked for, and of those that resemble ours. It is anchored, so that
# nearly every key fails at its first letter, and short, because the cost of a comparison grows with its length.
BEGINNING: Final = "^(kueue[.]|kai[.]|pod-group[.]|gang[.]|t[a-z-]{1,6}ga?t)"
_BEGINNING: Final = re.compile(BEGINNING)
_OTHERS: Final = sorted(
    key for key in _KEYS if _BEGINNING.search(key) is None and not any(word in key for word in _WORDS)
)

_KEY: Final = " || ".join(
    [f"k in {texts(_OTHERS)}", *(f"k.contains({text(word)})" for word in _WORDS), f"k.matches({text(BEGINNING)})"]
)

# An object with more keys in one place is looked at as a whole, which costs less for each key: the look at thousands of
# keys would exceed the API server's limit for the cost of an expression, 1,000,000 units, and the object would be
# refused. A key of the greatest length (253 letters, a slash and 63) costs up to 600 units, and a workload has eight
# maps of keys, four of them those of the old object: together a third of the limit.
MOST_KEYS: Final = 64
_MANY_OR: Final = f"m.size() > {MOST_KEYS} || m.exists(k,"

# These kinds have their pod template, and claims, at the same places. A CronJob has more places, and there are few.
_GROUPS: Final = ("apps", "batch")
_KINDS: Final = frozenset({"Deployment", "Job", "StatefulSet"})


def is_looked_at(key: str) -> bool:
    """Return True if the first look is true for an object with this annotation or label, as in CEL."""
    return key in _OTHERS or any(word in key for word in _WORDS) or _BEGINNING.search(key) is not None


def of_pod() -> str:
    """Return the first look at a pod's keys."""
    return f"""\
[?object.metadata.?annotations, ?object.metadata.?labels].exists(m, {_MANY_OR}
  {_KEY}))"""


def of_workload(registry: Registry, *, of: str = "[object, oldObject]") -> tuple[str, ...]:
    """Return the first look at a workload's keys and gates, true for other kinds; nothing if it reads no kind."""
    return _of_kinds(
        registry,
        f"""\
{of}.exists(o, o != null && (
  [?o.metadata.?annotations, ?o.metadata.?labels,
   ?o.spec.?template.?metadata.?annotations, ?o.spec.?template.?metadata.?labels].exists(m, {_MANY_OR}
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
