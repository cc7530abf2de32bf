"""CEL match conditions that decide which pods are sent to the service.

Pods have a schema, so their fields have the right types.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from engine.api import names
from engine.kinds.registry import Registry
from webhook.configuration import first_look
from webhook.configuration.cel import all_of, any_of, filled, indented, negated, text, texts
from webhook.configuration.exemption_conditions import DEFAULT_SCHEDULERS, pod_exempt, pod_of_other_schedulers
from webhook.configuration.match_conditions import (
    ALIASES,
    FOREIGN,
    MISPLACED,
    OWNED_ANNOTATIONS,
    OWNED_LABELS,
    UNREAD,
    requests,
    taken_back,
)

_ANNOTATIONS: Final = "object.metadata.?annotations.orValue({})"
_LABELS: Final = "object.metadata.?labels.orValue({})"
_OWNERS: Final = "object.metadata.?ownerReferences.orValue([])"
_HELD: Final = f"has(object.spec.schedulingGates) && object.spec.schedulingGates.exists(g, g.name == '{names.GATE}')"
_MARKS: Final = texts(sorted(names.MARK_ANNOTATIONS))

NOT_HELD: Final = f"!({_HELD})"
WRITES_DEVICES: Final = f"'{names.DEVICE_ALLOCATED}' in {_ANNOTATIONS}"
# The entry for pods with devices leaves out pods like those of gangs.
LIKE_OF_A_GANG: Final = f"'{names.MANAGED}' in {_LABELS} || {_HELD}"
_MARKED: Final = f"{OWNED_LABELS}.exists(k, k in {_LABELS}) || {_MARKS}.exists(k, k in {_ANNOTATIONS})"
FREE: Final = f"""\
!has(object.spec.nodeName) && !{_OWNERS}.exists(o,
  o.kind == 'DaemonSet' && o.?controller.orValue(false))"""

# A misspelt key of ours counts too, and so does a request that was written as a label.
_NATIVE: Final = f"""\
{_ANNOTATIONS}.exists(k, k.startsWith('{names.PREFIX}') && !(k in {OWNED_ANNOTATIONS})) ||
{_LABELS}.exists(k, k.startsWith('{names.PREFIX}') && !(k in {OWNED_LABELS}))"""
_ALIAS: Final = f"{ALIASES}.exists(k, k in {_ANNOTATIONS})"
# The same without what requests nothing.
_NATIVE_REQUESTING: Final = f"""\
{_ANNOTATIONS}.exists(k, k.startsWith('{names.PREFIX}') && !(k in {OWNED_ANNOTATIONS}) &&
  {requests(_ANNOTATIONS)}) ||
{_LABELS}.exists(k, k.startsWith('{names.PREFIX}') && !(k in {OWNED_LABELS}))"""
_ALIAS_REQUESTING: Final = f"{ALIASES}.exists(k, k in {_ANNOTATIONS} && {requests(_ANNOTATIONS)})"
_ALONE: Final = f"!{_OWNERS}.exists(o, o.?controller.orValue(false))"
_NUMBER: Final = "^[1-9][0-9]{0,8}$"
# The pod group of a pod that nobody made; without a name, or without a minimum, it says nothing.
_GROUPED: Final = f"""\
(({filled(names.POD_GROUP_NAME, _LABELS)} &&
  {_LABELS}[?'{names.POD_GROUP_MIN}'].orValue('').matches('{_NUMBER}')) ||
 ({filled(names.KOORDINATOR_GANG_NAME, _ANNOTATIONS)} &&
  {_ANNOTATIONS}[?'{names.KOORDINATOR_GANG_MIN}'].orValue('').matches('{_NUMBER}')) ||
 {filled(names.SCHEDULER_PLUGINS_POD_GROUP, _LABELS)}) &&
!('{names.MANAGED}' in {_LABELS}) && !('{names.GANG}' in {_LABELS}) &&
!({taken_back(_ANNOTATIONS)}) &&
{_ALONE}"""
# A pod group with a minimum, which says nothing if it is no number.
_MINIMUM: Final = f"""\
({filled(names.POD_GROUP_NAME, _LABELS)} && '{names.POD_GROUP_MIN}' in {_LABELS}) ||
({filled(names.KOORDINATOR_GANG_NAME, _ANNOTATIONS)} && '{names.KOORDINATOR_GANG_MIN}' in {_ANNOTATIONS})"""
_REQUESTED: Final = any_of(_NATIVE_REQUESTING, _ALIAS_REQUESTING, _GROUPED)
_UNREAD: Final = f"{UNREAD}.exists(k, k in {_ANNOTATIONS})"
_GROUP: Final = texts((names.POD_GROUP_NAME, names.POD_GROUP_MIN))
_FOREIGN: Final = f"""\
{_ANNOTATIONS}.exists(k,
{indented(FOREIGN, 2)}) ||
{MISPLACED}.exists(k, k in {_LABELS}) ||
{_LABELS}.exists(k, k.startsWith('{names.POD_GROUP_PREFIX}') && !(k in {_GROUP}))"""


def asks() -> str:
    """Return the condition that a pod makes a request itself and is not exempt.

    It is one expression with its rarest part first, because most pods make no request.
    """
    return all_of(first_look.of_pod(), _asks())


def _asks() -> str:
    return all_of(_REQUESTED, FREE, negated(pod_exempt()))


def asks_of_schedulers(schedulers: Iterable[str]) -> str:
    """Return the condition that a requesting pod uses a scheduler that the manifests do not know.

    `schedulers` are all that are served.
    """
    served = negated(pod_exempt(tuple(schedulers)))
    return all_of(first_look.of_pod(), _REQUESTED, FREE, pod_of_other_schedulers(DEFAULT_SCHEDULERS), served)


def of_no_workload(registry: Registry) -> str:
    """Return the condition that a requesting pod belongs to no workload of a registered kind.

    A pod of such a workload is not sent, because the workload was. One that a pod made is sent: whose it is, the
    service finds out.
    """
    kinds: dict[str, list[str]] = {}
    for entry in registry.entries:
        made = [(ref.group, ref.kind) for ref in entry.owners if (ref.group, ref.kind) != ("", "Pod")]
        if entry.handling in ("placed", "through"):
            made.append((entry.match.group, entry.match.kind))
        for group, kind in made:
            if kind not in kinds.setdefault(group, []):
                kinds[group].append(kind)
    listed = " ||\n  ".join(
        f"({_of_group(group)} && o.kind in {texts(sorted(found))})" for group, found in sorted(kinds.items())
    )
    owned = f"{_OWNERS}.exists(o, o.?controller.orValue(false) && (\n  {listed}))"
    return all_of(negated(owned), any_of(_NATIVE, _ALIAS, _UNREAD))


def others() -> str:
    """Return the condition that a pod has a mark of ours, names devices, or seems to make a request without `asks`.

    Such a request gets a warning on a pod without a controller. A pod that states its allocated devices counts, too.
    """
    grouped = all_of(_MINIMUM, negated(pod_exempt()))
    left_alone = all_of(_ALONE, any_of(_NATIVE, _UNREAD, _FOREIGN, grouped), negated(_asks()))
    looked_at = any_of(_MARKED, WRITES_DEVICES, left_alone)
    return any_of(_HELD, all_of(first_look.of_pod(), looked_at), requests_devices())


def names_devices(resources: Iterable[str] = ()) -> str:
    """Return the condition that a container of the pod names a resource of Koordinator, or one of `resources`."""
    return first_look.containers("object.spec", lambda where: first_look.counted(resources, where))


def requests_devices(resources: Iterable[str] = ()) -> str:
    """Return the condition that a pod names such a resource and may be placed."""
    return all_of(names_devices(resources), FREE)


def _of_group(group: str) -> str:
    return f"o.apiVersion.startsWith({text(f'{group}/')})" if group else "!o.apiVersion.contains('/')"
