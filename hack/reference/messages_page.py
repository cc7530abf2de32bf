"""The reference page of the reason codes."""

from __future__ import annotations

from typing import Final

from engine.api.event_reasons import ON_PHASES, ON_PODS, ON_POLICY, ON_WORKLOADS
from engine.api.reasons import REASONS, UNTIL, Kind
from engine.history.record import ON_GANGS, ON_SERVICE

_KINDS: Final[dict[Kind, str]] = {
    "user": "Faults of a request",
    "policy": "Refused by policy",
    "not-now": "Not now",
    "engine": "The engine",
    "exempt": "Exempt",
    "ignored": "Not ours",
}
_WHEN: Final[dict[Kind, str]] = {
    "user": "The object is refused (422, one cause for each fault); GangTooLarge, HostTooSmall and UnknownResource are "
    "warnings unless the policy says `neverFits: deny`.",
    "policy": "The object is refused (403). A gang that is found too large only when it is placed stays held.",
    "not-now": "The gang waits: the reason of the Placement and of the Event. It starts automatically when the "
    'condition under "ends when" is met. A reason that may pass at once is reported only after the time under '
    '"reported".',
    "engine": "Faults of Topogate itself; they never refuse a workload.",
    "exempt": "Another component places this workload; Topogate does not change it.",
    "ignored": "The object has no request, or Topogate must not touch it.",
}
_EVENTS: Final = (
    "The reason of an Event is one of the codes above while a gang waits or something is wrong with it (type Warning), "
    "else one of these. A gang of plain pods has no workload: its first pods get the Events. Pods of no gang that end "
    "for one get `Preempted`."
)
_RECORDS: Final = (
    "The leader writes one JSON line per decision to the service's log, with the logger `topogate.decisions`. "
    "`topogate history` reads them: "
    "[what it did last night](../tasks/admin/see-the-cluster.md#what-it-did-last-night). "
    "Beside `time`, `level`, `logger` and `message` a line has `event`, one of the names below, and `reason`, a code "
    'above or "". About a gang: `namespace`, `workload` (`Job/train`), `placement`, and `group` where each replica is '
    "a gang. Further fields only where they apply: `pods`, `hosts`, `domain`, `revision`, `waitedSeconds`, `requeues`, "
    "`policy`, `replica`, and `omitted`, the number of lines about the gang that were left out before this one (it has "
    "fifty at once, then one a minute). Texts have at most 1,024 bytes; no line names more than a few hosts. Events "
    "of single pods are not in it."
)


def messages_page() -> str:
    """Return the reference of the reason codes."""
    lines = [
        "# Messages and reason codes",
        "",
        "<!-- Generated from engine/api by `python -m hack.reference`; do not edit. -->",
        "",
        "Codes are a stable API: their meaning does not change. A message has one sentence for each problem, with "
        "numbers as needed / have / best candidate. It distinguishes *never* (larger than any domain can ever hold) "
        "from *not now*. It gives one main reason, and the others as counts that add up to the total. It never names "
        "another tenant's workload, and by default no node on which the gang has nothing (`messages.nodes` of the "
        "[policy](policy.md)).",
    ]
    for kind, title in _KINDS.items():
        lines += ["", f"## {title}", "", _WHEN[kind], ""]
        lines += _waits() if kind == "not-now" else _codes(kind)
    lines += ["", "## Events", "", _EVENTS]
    pods, policy = ("On pods", (ON_PODS,)), ("On the policy's ConfigMap", (ON_POLICY,))
    for title, every in (("On workloads", (ON_PHASES, ON_WORKLOADS)), pods, policy):
        lines += ["", f"### {title}", "", "| reason | type | reported | meaning |", "|---|---|---|---|"]
        lines += [
            f"| `{reason}` | {'Warning' if one.warning else 'Normal'} | {_when(one.settles)} | {one.description} |"
            for registry in every
            for reason, one in registry.items()
        ]
    lines += ["", "## Records in the log", "", _RECORDS]
    for title, records in (("Of gangs", ON_GANGS), ("Of the service", ON_SERVICE)):
        lines += ["", f"### {title}", "", "| event | meaning |", "|---|---|"]
        lines += [f"| `{event}` | {text} |" for event, text in records.items()]
    return "\n".join(lines) + "\n"


def _codes(kind: Kind) -> list[str]:
    rows = [f"| `{code}` | {reason.description} |" for code, reason in REASONS.items() if reason.kind == kind]
    return ["| code | meaning |", "|---|---|", *rows]


def _waits() -> list[str]:
    rows = [
        f"| `{code}` | {reason.description} | {UNTIL[reason.until]} | {_when(reason.settles)} |"
        for code, reason in REASONS.items()
        if reason.until is not None
    ]
    return ["| code | meaning | ends when | reported |", "|---|---|---|---|", *rows]


def _when(settles: float) -> str:
    return f"after {settles:g} s" if settles else "at once"
