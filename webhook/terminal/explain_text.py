"""What `topogate explain` prints: the verdict, then levels, obstacles, the queue, ways out, pods and history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from engine.api.text import join_and, plural, sanitize
from webhook.queries.model import (
    AskedPods,
    ExplainAnswer,
    ExplainedGang,
    ExplainedPreemption,
    GangNodes,
    LevelRoom,
    Obstacle,
    PreemptedGang,
)
from webhook.terminal.tables import TableColumn, number, span
from webhook.terminal.text import TextPart, epoch_of

_VERDICTS: Final = {
    "placed": "has slots",
    "fits": "waits, but fits now",
    "waits": "waits",
    "never": "never fits",
    "refused": "refused",
    "ignored": "left alone",
    "finished": "finished",
    "orphaned": "orphaned",
}
# Of a ProvisioningRequest.
_REQUEST_STATES: Final = {
    "Pending": "no answer yet",
    "Accepted": "accepted",
    "Provisioned": "provisioned",
    "Failed": "failed",
    "BookingExpired": "no longer kept",
    "CapacityRevoked": "taken back",
}
_MOST_HOSTS: Final = 3
_MOST_VICTIMS: Final = 5
_MOST_PODS: Final = 32
_STYLES: Final = {
    "not ready": "red",
    "not bound": "yellow",
    "held": "yellow",
    "missing": "yellow",
    "ending": "dim",
    "completed": "dim",
}
_GOOD: Final = ("ready", "completed")
_PROVEN: Final = {True: "no plan uses fewer domains", False: "a plan with fewer domains may exist", None: ""}


def explain_text(answer: ExplainAnswer, *, wide: bool = False) -> list[TextPart]:
    """Return the explanation; `wide`: with every pod and host."""
    return [part for one in answer.gangs for part in _gang(one, epoch_of(answer.taken_at), wide=wide)]


def _gang(one: ExplainedGang, now: float, *, wide: bool) -> Iterator[TextPart]:
    yield TextPart(before=tuple(_summary(one, now)))
    if one.levels and one.verdict not in ("fits", "placed"):
        yield _levels(one)
        if one.in_the_way:
            yield _obstacles(one, now, wide=wide)
    if one.ahead:
        yield _ahead(one)
    if one.ways_out:
        yield TextPart(before=("what would help:", *_ways_out(one)))
    if one.pods:
        yield _pods(one, wide=wide)
    if one.history:
        rows = tuple((past.at, past.reason, past.message, number(past.count)) for past in one.history)
        columns = (
            TableColumn("AT"),
            TableColumn("WHAT HAPPENED"),
            TableColumn("MESSAGE", folds=True, optional=True),
            TableColumn("TIMES", right=True),
        )
        yield TextPart(columns=columns, rows=rows)


def _summary(one: ExplainedGang, now: float) -> Iterator[str]:
    group = f"[{one.group}]" if one.group is not None else ""
    reason = f": {one.reason}" if one.reason and one.verdict != "ignored" else ""
    yield f"{one.kind} {one.namespace}/{one.name}{group}: {_VERDICTS[one.verdict]}{reason}"
    yield _line("now", one.message.removeprefix("left alone: "))
    if len(one.faults) > 1:
        yield from (_line("error", fault) for fault in one.faults)
    for ask in one.asks:
        yield _line("asks", _asked(one, ask))
    pods, least = sum(ask.pods for ask in one.asks), sum(ask.least for ask in one.asks)
    if len(one.asks) > 1 and least < pods:
        yield _line("asks", f"all together: {least:,} of {plural(pods, 'pod')} are enough")
    row = one.gang
    if row is None:
        return
    if row.waiting_seconds is not None:
        place = f"; {row.position} of {row.queued} in the queue" if row.position else ""
        order = f" ({one.order}), priority {row.priority:,}" if place and one.order else ""
        yield _line("waits", span(row.waiting_seconds) + place + order)
    if one.until is not None:
        yield _line("until", one.until)
    if row.kept_hosts:
        yield _line("kept", f"{plural(len(row.kept_hosts), 'host')} kept free for it: {_some(row.kept_hosts)}")
    if row.provisioning is not None:
        yield _line("asked", _requested(row.provisioning, now))
    if one.preempts is not None:
        yield from _preempts(one.preempts, now)
    if one.preempted_by is not None:
        yield _line("for", f"it is preempted by {one.preempted_by}")
    if one.nodes and one.verdict != "fits":
        total = sum(one.nodes.values())
        yield _line("nodes", f"{total:,} = " + " + ".join(f"{count:,} {what}" for what, count in one.nodes.items()))
    if one.revision is not None:
        parts = (f"revision {one.revision}", _PROVEN[one.proven])
        yield _line("plan", ", ".join(filter(None, parts)))


def _requested(nodes: GangNodes, now: float) -> str:
    """Return what was requested from the node autoscaler, and what became of it."""
    ago = f" {span(now - epoch_of(nodes.requested_at))} ago" if nodes.requested_at else ""
    which = f"class {sanitize(nodes.class_name)}"
    state = _REQUEST_STATES.get(nodes.state, sanitize(nodes.state))
    since = f" {span(now - epoch_of(nodes.since))} ago" if nodes.since and nodes.state != "Pending" else ""
    said = f" ({sanitize(nodes.message)})" if nodes.message else ""
    retry = f"; asks again in {span(max(0.0, epoch_of(nodes.retry_at) - now))}" if nodes.retry_at else ""
    return f"the autoscaler for {plural(nodes.pods, 'pod')}{ago} ({which}): {state}{since}{said}{retry}"


def _preempts(one: ExplainedPreemption, now: float) -> Iterator[str]:
    """Yield what would end for it in one line, or what ends in one line each."""
    if one.since is None:
        when = "now" if one.begins is None else f"in {span(epoch_of(one.begins) - now)}"
        which = [f"{_named(victim)} ({_ending(victim)})" for victim in one.victims[:_MOST_VICTIMS]]
        more = one.count - len(which)
        yield _line("could", f"start {when} by preempting {join_and([*which, *([f'{more:,} more'] if more else [])])}")
        return
    yield _line(
        "ends", f"{one.running:,} of {plural(one.pods, 'pod')} still run, after {span(now - epoch_of(one.since))}"
    )
    for victim in one.victims[:_MOST_VICTIMS]:
        running = "?" if victim.running is None else f"{victim.running:,}"
        yield _line("", f"{_named(victim)}: {running} of {_ending(victim)}")
    if (more := len(one.victims) - _MOST_VICTIMS) > 0:
        yield _line("", f"and {more:,} more")


def _named(victim: PreemptedGang) -> str:
    if victim.name is not None:
        return victim.name
    return "pods of no gang" if victim.priority is None else "a gang that you may not read"


def _ending(victim: PreemptedGang) -> str:
    return plural(victim.pods, "pod") + (f", priority {victim.priority:,}" if victim.priority is not None else "")


def _line(label: str, text: str) -> str:
    return f"  {label:<7}{text}"


def _asked(one: ExplainedGang, ask: AskedPods) -> str:
    name = f"{ask.pod_set}: " if len(one.asks) > 1 else ""
    pods = plural(ask.pods, "pod") + (f" x {plural(ask.gpus, 'GPU')}" if ask.gpus else "")
    least = f", {ask.least:,} are enough" if ask.least < ask.pods else ""
    require = f", require {ask.require}" if ask.require else ""
    prefer = f", prefer {ask.prefer}" if ask.prefer else ""
    topology = f", topology {one.gang.topology}" if one.gang is not None and one.gang.topology else ""
    return f"{name}{pods}{least}{require}{prefer or ('' if require else ', any level')}{topology}"


def _levels(one: ExplainedGang) -> TextPart:
    many = len({level.pod_set for level in one.levels}) > 1
    columns = [TableColumn("PODS OF")] if many else []
    columns += [TableColumn("LEVEL"), TableColumn("NEEDS", right=True), TableColumn("HAS", right=True)]
    columns += [TableColumn("WHEN EMPTY", right=True), TableColumn("DOMAINS", right=True), TableColumn("BEST")]
    rows = []
    for level in one.levels:
        row = [level.pod_set] if many else []
        row += [_level(level), number(level.needed), number(level.have), number(level.most), number(level.domains)]
        row += [", ".join(f"{'/'.join(best.path)} ({best.pods:,})" for best in level.best)]
        rows.append(tuple(row))
    return TextPart(columns=tuple(columns), rows=tuple(rows))


def _level(level: LevelRoom) -> str:
    return (level.level or "anywhere") + (" *" if level.required else "")


def _obstacles(one: ExplainedGang, now: float, *, wide: bool) -> TextPart:
    columns = (
        TableColumn("IN THE WAY"),
        TableColumn("HOSTS", right=True),
        TableColumn("ENDS WITHIN", right=True),
        TableColumn("WHICH", folds=wide),
    )
    rows = tuple(_obstacle(item, now, wide=wide) for item in one.in_the_way)
    where = f"in {'/'.join(one.near)}, which is nearest to having room:" if one.near else "in the topology:"
    return TextPart((where,), columns, rows)


def _obstacle(item: Obstacle, now: float, *, wide: bool) -> tuple[str, ...]:
    name = item.name if item.kind != "host" else f"hosts: {item.name}"
    ends = span(epoch_of(item.ends) - now) if item.ends else "unknown" if item.kind != "host" else "-"
    return name, number(len(item.hosts)), ends, ", ".join(item.hosts) if wide else _some(item.hosts)


def _some(hosts: Sequence[str]) -> str:
    more = f" and {len(hosts) - _MOST_HOSTS:,} more" if len(hosts) > _MOST_HOSTS else ""
    return ", ".join(hosts[:_MOST_HOSTS]) + more


def _ahead(one: ExplainedGang) -> TextPart:
    columns = (
        TableColumn("GOES FIRST"),
        TableColumn("PODS", right=True),
        TableColumn("FITS NOW"),
        TableColumn("WHY"),
    )
    fits = {True: "yes", False: "no", None: "?"}
    rows = tuple((ahead.name, number(ahead.pods), fits[ahead.fits_now], ahead.why) for ahead in one.ahead)
    more = (one.ahead_count or 0) - len(rows)
    return TextPart(columns=columns, rows=rows, after=(f"and {more:,} more",) if more > 0 else ())


def _ways_out(one: ExplainedGang) -> Iterator[str]:
    for way in one.ways_out:
        yield f"  {way.text}: {way.result}"
        if way.command is not None:
            yield f"    {way.command}"


def _pods(one: ExplainedGang, *, wide: bool) -> TextPart:
    columns = [TableColumn("PODS OF")] if len({pod.pod_set for pod in one.pods}) > 1 else []
    columns += [TableColumn("RANK", right=True, optional=True), TableColumn("POD"), TableColumn("HOST")]
    columns += [TableColumn("DOMAIN"), TableColumn("DEVICES", optional=True), TableColumn("STATE")]
    columns += [TableColumn("WHY", folds=True, optional=True)]
    wrong = [pod for pod in one.pods if pod.state not in _GOOD]
    few = wide or len(one.pods) <= _MOST_PODS
    shown = one.pods if few else (*wrong, *(pod for pod in one.pods if pod.state in _GOOD))[:_MOST_PODS]
    rows = tuple(
        (
            *((pod.pod_set,) if len(columns) > 7 else ()),  # noqa: PLR2004 - one column more with several templates
            "" if pod.rank is None else str(pod.rank),
            pod.pod or "-",
            pod.host or "-",
            "/".join(pod.domain),
            ", ".join(pod.devices),
            pod.state,
            pod.why,
        )
        for pod in shown
    )
    more = len(one.pods) - len(shown)
    after = (f"and {more:,} more pods (-o wide)",) if more else ()
    return TextPart(
        columns=tuple(columns), rows=rows, styles=tuple(_STYLES.get(pod.state, "") for pod in shown), after=after
    )
