"""The check of what gangs request: levels and topologies that the policy or the nodes do not have any more. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from engine.api.names import PLACEMENTS
from engine.api.placement import Placement
from engine.api.text import join_comma, plural, sanitize
from webhook.checks.model import Finding, failure, ok, skipped, warning
from webhook.rules.policy_effect import lost_levels
from webhook.snapshot.snapshot import Snapshot

_CHECK: Final = "requests"
_REMEDY: Final = (
    "the policy or the nodes had it when they were submitted: put it back (topogate policy check --cluster tells "
    "before what a change does), or let their users change the request"
)


def requested_levels(snapshot: Snapshot, *, name: str | None = None) -> Iterator[Finding]:
    """Yield a finding for each level or topology that gangs name and that does not exist; one if there is none.

    Placements say what was understood when they were written; without any there is nothing to check. `name`: only of
    gangs in the topology of that name.
    """
    if not snapshot.levels_known:
        return
    if any(one.collection == PLACEMENTS and one.except_in is None for one in snapshot.unread):
        yield skipped(_CHECK, "placements cannot be read: levels that gangs request are not compared")
        return
    topologies = snapshot.view.topologies
    found = [one for one in snapshot.view.stores.placements.values() if one.status.get("phase") != "Finished"]
    gangs = [one for one in found if name in (None, one.topology)]
    lost: defaultdict[str, list[Placement]] = defaultdict(list)
    for one in gangs:
        for what in lost_levels(one, topologies):
            lost[what].append(one)
    for what, of_gangs in sorted(lost.items()):
        waiting = sum(one.assignment is None for one in of_gangs)
        counts = f"{plural(len(of_gangs), 'gang')}, {waiting:,} of them waiting"
        named = join_comma(sorted(f"{sanitize(one.namespace)}/{sanitize(one.workload.name)}" for one in of_gangs))
        text = f"{what} does not exist, but is requested by {counts}: {named}"
        yield failure(_CHECK, text, _REMEDY) if waiting else warning(_CHECK, text, _REMEDY)
    if gangs and not lost:
        yield ok(_CHECK, f"every level that {plural(len(gangs), 'gang')} request exists")
