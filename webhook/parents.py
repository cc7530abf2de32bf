"""What a workload is to others: one of its own, or the child of another workload whose gang its pods belong to."""

from __future__ import annotations

from typing import Literal

from engine.api.pod import OwnerRef
from engine.api.workload import Workload
from engine.gang.ownership import NOT_ASKING, Lineage
from engine.policy.model import Policy
from webhook.view import View

Standing = Literal["alone", "child", "aside", "unsure"]


def standing(workload: Workload, view: View, policy: Policy) -> Standing:
    """`child` when what stands above asks, `aside` when somebody else places that; `unsure` while it is not known.

    Of a kind that is placed through the workload it counts as asking until it is known.

    Controller references lead there (`engine.gang.ownership`); labels prove nothing.
    """
    lineage = view.lineage(policy)
    above = lineage.above(workload)
    if above.missing is not None:
        # The templates of what is placed through another one carry no marks yet: unmarked its pods would never be seen
        # again, marked they are freed when nothing asks for them.
        return "child" if _through(above.missing, lineage) else "unsure"
    if above.reason is None:
        return "child"
    return "alone" if above.reason == NOT_ASKING else "aside"


def _through(owner: OwnerRef, lineage: Lineage) -> bool:
    entries = lineage.registry.of_kind(owner.api_version.rpartition("/")[0], owner.kind)
    return any(entry.handling == "through" for entry in entries)


def whole(workload: Workload, view: View, policy: Policy) -> Workload:
    """A workload that is placed through another one, with that one's pod sets; any other as it is."""
    return view.lineage(policy).whole(workload)
