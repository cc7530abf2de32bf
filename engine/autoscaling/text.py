"""What people read about the nodes that were requested for a gang: the end of its message, and its Events.

Times are those of the clock: a message with the seconds that have passed would be written again and again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from engine.api.duration import timestamp
from engine.api.objects import Node
from engine.api.text import join_and, plural, sanitize
from engine.autoscaling.attempts import LastRequest
from engine.topology.topology import NO_LABEL, OUTSIDE_SELECTOR, Topology

_MOST_DOMAINS: Final = 4  # that a message names


def request_text(last: LastRequest, nodes: str = "") -> str:
    """Return what became of a gang's last request; `nodes`: of the nodes that have come since, of `new_nodes_text`."""
    request, state = last.request, last.state
    pods, of_class = plural(request.pods, "pod"), f"class {sanitize(request.class_name)}"
    detail = f": {state.message}" if state.message else ""
    match state.state:
        case "Pending":
            return f"asked the autoscaler for {pods} at {_clock(request.created)} ({of_class})"
        case "Accepted":
            return (
                f"asked the autoscaler for {pods} at {_clock(request.created)} ({of_class}), which accepted it{detail}"
            )
        case "Provisioned":
            return f"the autoscaler has provisioned nodes for {pods} ({of_class}){f'; {nodes}' if nodes else ''}"
        case "Failed":
            why = f"the autoscaler could not provide nodes for {pods} ({of_class}){detail}"
        case "BookingExpired":
            why = f"the autoscaler no longer keeps nodes for {pods} ({of_class}){f'; {nodes}' if nodes else ''}"
        case "CapacityRevoked":
            why = f"the autoscaler has taken back the nodes for {pods} ({of_class}){detail}"
    if last.retry_at is None:
        return why
    other = last.next_class.class_name
    of_next = f" ({sanitize(other)})" if other != request.class_name else ""
    return f"{why}; the next request{of_next} follows at {_clock(last.retry_at)}"


def request_body(last: LastRequest) -> dict[str, Any]:
    """Return a gang's last request for the status of its Placement."""
    request, state = last.request, last.state
    return {
        "name": request.name,
        "className": request.class_name,
        "pods": request.pods,
        "attempt": last.attempt,
        "state": state.state,
        "requestedAt": timestamp(request.created),
        "since": timestamp(state.since),
        "retryAt": None if last.retry_at is None else timestamp(last.retry_at),
        "message": state.message or None,
    }


def new_nodes_text(nodes: Iterable[Node], topology: Topology, level: str | None, *, since: float) -> str:
    """Return where nodes have joined since a time, for a gang that needs one domain of a level; "" if nowhere.

    It still waits: they may be in other domains than it needs, or outside of the topology.
    """
    new = [node for node in nodes if node.created >= since]
    inside = [node.name for node in new if node.name in topology.tree.index]
    outside = Counter(reason for node in new if (reason := topology.outside.get(node.name)))
    parts = []
    index = topology.level_index(level) if level is not None else None
    if inside and index is not None and index < len(topology.levels) - 1:
        tree, hosts = topology.tree, len(topology.levels) - 1
        domains = Counter(tree.path(hosts, tree.index[name])[: index + 1] for name in inside)
        named = [sanitize(path[-1]) for path in sorted(domains)][:_MOST_DOMAINS]
        more = len(domains) - len(named)
        where = join_and([*named, f"{more:,} more"]) if more else join_and(named)
        in_one = f", and it needs one {sanitize(level or '')}" if len(domains) > 1 else ""
        parts.append(f"{plural(len(inside), 'new node')} came up in {where}{in_one}")
    elif inside:
        parts.append(f"{plural(len(inside), 'new node')} came up")
    for reason, count in sorted(outside.items()):
        why = reason
        if reason.startswith(NO_LABEL):
            why = f"without label {reason.removeprefix(NO_LABEL)}"
        elif reason == OUTSIDE_SELECTOR:
            if inside:
                continue  # others have grown the cluster too
            why = "outside the topology's nodeSelector"
        parts.append(f"{plural(count, 'new node')} came up {sanitize(why)}")
    return "; ".join(parts)


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")
