"""The checks of the topologies: nodes left out, their levels, the presets, and names in the policy without a level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from engine.api.names import PLACEMENTS, POLICY_NAME
from engine.api.objects import Node
from engine.api.text import join_and, join_comma, join_phrases, plural, sanitize
from engine.resources.names import GPU_NAMES, is_gpu, whole_names
from engine.topology.levels import presets
from engine.topology.spec import TopologySpec
from engine.topology.topology import NO_LABEL, OUTSIDE_SELECTOR, Topology, left_out, uncovered
from webhook.checks.levels import level_findings
from webhook.checks.model import (
    CheckedLevel,
    CheckedTopology,
    DoctorAnswer,
    Finding,
    NodesLeftOut,
    PresetLabels,
    counted,
    failure,
    ok,
    skipped,
    warning,
)
from webhook.checks.presets import fitting, policy_advice, preset_labels, selector_advice
from webhook.checks.requested_levels import requested_levels
from webhook.rules.defaults import policy_errors
from webhook.snapshot.snapshot import Snapshot, chosen_topologies

_MOST_NAMES: Final = 12
_OF_TREES: Final = "the objects that give its levels"


def doctor(snapshot: Snapshot, *, name: str | None = None) -> DoctorAnswer:
    """Return the checks of all topologies, or of the one of that name.

    Raises AnswerProblem for an unknown topology, and where the nodes cannot be read.
    """
    view = snapshot.view
    chosen = chosen_topologies(snapshot, name)
    nodes = {node.name: node for node in view.stores.nodes.values()}
    with_gpus = _with_gpus(nodes.values(), view.policy.gpu.vendors)
    found = preset_labels(tuple(nodes.values()))
    specs = {spec.name: spec for spec in view.policy.topologies}
    findings: list[Finding] = []
    advice: str | None = None
    told = {f"topology {one.name}: {left_out(one)}" for one in chosen}  # the note about it of a cluster from files
    told |= {one.text for one in snapshot.unread if one.collection == PLACEMENTS}  # a finding tells it
    for one in chosen:
        checked, advised = _topology(one, specs.get(one.name), nodes, with_gpus, found)
        findings += checked
        advice = advice or advised
    if nodes:
        findings.append(_presets(found, chosen, specs))
        findings += _policy(snapshot)
        findings += requested_levels(snapshot, name=name)
    return DoctorAnswer(
        good=counted(findings, "warn", "fail") == 0,
        findings=tuple(findings),
        topologies=tuple(_checked(one, with_gpus) for one in chosen),
        presets=found,
        policy=advice,
        remarks=tuple(one for one in snapshot.remarks if one not in told),
    )


def _with_gpus(nodes: Iterable[Node], vendors: Collection[str]) -> frozenset[str]:
    """Return the nodes that report GPUs or parts of them; `vendors` are the policy's."""
    names = GPU_NAMES | whole_names(vendors)
    return frozenset(
        node.name
        for node in nodes
        if any(amount > 0 and (name in names or is_gpu(name)) for name, amount in node.allocatable.items())
    )


def _topology(
    topology: Topology,
    spec: TopologySpec | None,
    nodes: Mapping[str, Node],
    with_gpus: Collection[str],
    found: Sequence[PresetLabels],
) -> tuple[list[Finding], str | None]:
    """Return the findings about one topology, and what to write into the policy about it."""
    check = f"topology {sanitize(topology.name)}"
    inside = [nodes[host] for host in topology.tree.hosts]
    if why := uncovered(topology):
        advice = policy_advice(topology, spec, tuple(nodes.values()), found)
        remedy = _remedy_of_none(topology, spec, any_nodes=bool(nodes), advice=advice)
        none = f"no nodes: {sanitize(why, 300)}" if nodes else "the cluster has no nodes"
        return [failure(check, none, remedy)], advice
    findings = [ok(check, _nodes_found(topology, len(nodes)))]
    findings += _left_out(check, topology, nodes, with_gpus)
    findings += level_findings(check, topology)
    findings += (warning(check, sanitize(fault, 300), f"correct {_OF_TREES}") for fault in topology.faults)
    lost = [nodes[host] for host in _lost(topology, nodes, with_gpus)]
    advice = selector_advice(topology, spec, inside, lost) or policy_advice(
        topology, spec, tuple(nodes.values()), found
    )
    return findings, advice


def _remedy_of_none(topology: Topology, spec: TopologySpec | None, *, any_nodes: bool, advice: str | None) -> str:
    if not any_nodes:
        return "add nodes; until then gangs wait"
    if topology.waits or not topology.labelled:
        return f"create or correct {_OF_TREES}"
    if advice is not None:
        return "write the levels below into the policy, or label the nodes"
    where = "nodeSelector" if spec is not None and spec.node_selector else "keys"
    return f"label the nodes, or correct {where} of the topology in ConfigMap {POLICY_NAME}"


def _nodes_found(topology: Topology, count: int) -> str:
    levels = ", ".join(sanitize(level.name) for level in topology.levels)
    others = sum(1 for why in topology.outside.values() if why == OUTSIDE_SELECTOR)
    selected = f"; {plural(others, 'node')} not selected by its nodeSelector" if others else ""
    return f"{len(topology.tree.hosts):,} of {plural(count, 'node')}, levels {levels}{selected}"


def _reasons(topology: Topology) -> dict[str, list[str]]:
    """Return the nodes that a topology leaves out, by reason; those that its nodeSelector leaves out last."""
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for host, why in topology.outside.items():
        reasons[why].append(host)
    return {why: sorted(reasons[why]) for why in sorted(reasons, key=lambda why: (why == OUTSIDE_SELECTOR, why))}


def _lost(topology: Topology, nodes: Collection[str], with_gpus: Collection[str]) -> list[str]:
    """Return the nodes that a topology leaves out though people may expect them in it.

    Nodes without GPUs are left out on purpose where the topology has nodes with GPUs.
    """
    lost = [host for host, why in topology.outside.items() if why != OUTSIDE_SELECTOR and host in nodes]
    on_purpose = any(host in with_gpus for host in topology.tree.hosts)
    return sorted(host for host in lost if host in with_gpus or not on_purpose)


def _left_out(check: str, topology: Topology, nodes: Collection[str], with_gpus: Collection[str]) -> Iterator[Finding]:
    lost = set(_lost(topology, nodes, with_gpus))
    for why, hosts in _reasons(topology).items():
        if why == OUTSIDE_SELECTOR:
            continue
        wrong = [host for host in hosts if host in lost]
        what = f"with {why}" if why.startswith(NO_LABEL) else why
        if others := len(hosts) - len(wrong):
            found = f"leaves out {plural(others, 'node')} {what} and without GPUs"
            yield ok(check, found)
        if wrong:
            found = f"leaves out {plural(len(wrong), 'node')} {what}: {join_comma(wrong)}"
            yield warning(check, found, _remedy_of_reason(topology, why))


def _remedy_of_reason(topology: Topology, why: str) -> str:
    level = next((one for one in topology.levels if why == f"{NO_LABEL}{one.name}"), None)
    if level is None:
        return f"correct {_OF_TREES}"
    keys = " or ".join(level.keys)
    return f"label them with {keys}, or leave them out on purpose with nodeSelector of the topology"


def _presets(
    found: Sequence[PresetLabels], topologies: Sequence[Topology], specs: Mapping[str, TopologySpec]
) -> Finding:
    fits = fitting(found)
    alone = [one for one in topologies if one.name not in specs and len(one.levels) == 1 and one.labelled]
    if fits is not None:
        every = [one.name for one in found if one.fits]
        using = [one.name for one in topologies if one.levels == presets()[fits]]
        by = f"; used by topology {join_and(using)}" if using else "; no topology uses it"
        also = f"; {join_and(every[1:])} {'fits' if len(every) == 2 else 'fit'} too" if every[1:] else ""  # noqa: PLR2004 - grammar
        return ok("presets", f"{fits} fits the labels{by}{also}")
    near = [
        f"{one.name} (no node has {' or '.join(missing[0].keys)})"
        for one in found
        if len(missing := [level for level in one.levels if not level.nodes]) == 1
    ]
    text = f"none fits the labels{f'; nearest: {join_phrases(near)}' if near else ''}"
    if not alone:
        return ok("presets", text)
    return warning(
        "presets",
        f"{text}; host is the only level",
        "write the levels into the policy (docs/tasks/admin/topology-presets.md)",
    )


def _policy(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the defaults and rules of namespaces that name what no topology has."""
    view = snapshot.view
    if not snapshot.levels_known:
        yield skipped("policy", "the ConfigMap cannot be read")
        return
    errors = policy_errors(view.policy, view.topologies)
    for error in errors:
        yield failure(
            "policy",
            f"{error.field}: {sanitize(error.message, 300)}",
            "name a level that exists; until then the entry has no effect",
        )
    if not errors:
        yield ok("policy", f"every level that it names exists (hash {view.policy.hash})")


def _checked(topology: Topology, with_gpus: Collection[str]) -> CheckedTopology:
    tree = topology.tree
    selected = len(tree.hosts) + sum(1 for why in topology.outside.values() if why != OUTSIDE_SELECTOR)
    return CheckedTopology(
        name=topology.name,
        nodes=len(tree.hosts),
        selected=selected,
        levels=tuple(
            CheckedLevel(
                level=level.name,
                keys=level.keys,
                nodes=topology.coverage.get(level.name, (0, 0))[0],
                domains=tree.size(index) if tree.hosts else 0,
            )
            for index, level in enumerate(topology.levels[:-1])
        ),
        left_out=tuple(
            NodesLeftOut(
                reason=why,
                count=len(hosts),
                gpus=any(host in with_gpus for host in hosts),
                nodes=tuple(hosts[:_MOST_NAMES]),
            )
            for why, hosts in _reasons(topology).items()
        ),
    )
