"""The cheap beginning of match conditions: false for nearly all objects that request nothing. Pure.

The API server evaluates the conditions for every object that the rules match, and the whole conditions search each
place where a request may be, for dozens of keys. A first look tests each key of an object once, and is true for any key
that a whole condition could look for. It only looks into kinds of Kubernetes' own groups: these are many, and have a
schema, so that the paths in it never fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from engine.kinds.registry import Registry
from webhook.configuration.cel import indented, text, texts

# RE2, true for each key that a whole condition looks for: a part of all that resemble a request for a level (also of
# our prefix), or the first letters of another. The fewer letters, the less it costs; keys of others may have them too.
PATTERN: Final = (
    "[tT]op|^(alpha[.]j|coloc|device-|gang|gpu-|k(ai|ueue)[.]|min-a|pod-g|preempt|rdma|recover|relax|schedul|sl[ai]|"
    "spread|start-|t[a-z-]{1,6}ga?t|vf-|volc)"
)

# An object with more keys in one place is looked at as a whole, which costs less for each key: the look at thousands of
# keys would exceed the API server's limit for the cost of an expression, 1,000,000 units, and the object would be
# refused. A key of the greatest length (253 letters, a slash and 63) costs up to 1,300 units, and a workload has eight
# maps of keys, four of them those of the old object: together half of the limit.
MOST_KEYS: Final = 48

# These kinds have their pod template, and claims, at the same places. A CronJob has more places, and there are few.
_GROUPS: Final = ("apps", "batch")
_KINDS: Final = frozenset({"Deployment", "Job", "StatefulSet"})


def of_pod() -> str:
    """Return the first look at a pod's keys."""
    return _keys("object.metadata")


def of_workload(registry: Registry) -> tuple[str, ...]:
    """Return the first look at a workload's keys and gates, true for other kinds; nothing if it reads no kind.

    Both objects of an update are written out: a list of the two nearly doubles the cost of the look.
    """
    return _of_kinds(
        registry, f"{_of_object('object')} ||\noldObject != null && (\n{indented(_of_object('oldObject'), 2)})"
    )


def of_workload_or_devices(registry: Registry) -> tuple[str, ...]:
    """Return the first look at a workload's keys, gates and the resources of its containers, like `of_workload`."""
    devices = containers("object.spec.template.spec", lambda where: counted((), where))
    return _of_kinds(
        registry,
        f"""\
{_of_object("object")} ||
has(object.spec.template) && has(object.spec.template.spec) && (
{indented(devices, 2)})""",
    )


def _of_object(o: str) -> str:
    return f"""\
{_keys(f"{o}.metadata")} ||
has({o}.spec.template) && (
  has({o}.spec.template.metadata) && (
{indented(_keys(f"{o}.spec.template.metadata"), 4)}) ||
  has({o}.spec.template.spec) && has({o}.spec.template.spec.schedulingGates)) ||
has({o}.spec.volumeClaimTemplates)"""


def _keys(metadata: str) -> str:
    """Return the look at the keys of `metadata`. `has` is far cheaper than a list of what there may be."""
    return " ||\n".join(
        f"has({where}) && ({where}.size() > {MOST_KEYS} || {where}.exists(k, k.matches({text(PATTERN)})))"
        for where in (f"{metadata}.annotations", f"{metadata}.labels")
    )


def containers(spec: str, named: Callable[[str], str]) -> str:
    """Return the condition that `named` holds for the requests or limits of a container of this pod `spec`."""
    found = " ||\n    ".join(
        f"has({where}) && {named(where)}" for where in ("c.resources.requests", "c.resources.limits")
    )
    return " ||\n".join(
        f"""\
has({where}) && {where}.exists(c, has(c.resources) && (
    {found}))"""
        for where in (f"{spec}.containers", f"{spec}.initContainers")
    )


def counted(resources: Iterable[str], where: str = "r") -> str:
    """Return the condition that the resource list `where` names a resource of Koordinator, or one of `resources`."""
    listed = sorted(set(resources))
    if listed:
        return f"{texts(listed)}.exists(k, k in {where})"
    return f"{where}.exists(k, k.startsWith('koordinator.sh/'))"


def _of_kinds(registry: Registry, look: str) -> tuple[str, ...]:
    """Return `look` at the kinds of the registry that are looked into, and true for all others.

    A policy may describe other kinds of these groups, with requests in other places.
    """
    kinds = sorted({one.match.kind for one in registry.entries if one.match.group in _GROUPS} & _KINDS)
    if not kinds:
        return ()
    return (f"!(request.kind.group in {texts(_GROUPS)} && request.kind.kind in {texts(kinds)}) ||\n{look}",)
