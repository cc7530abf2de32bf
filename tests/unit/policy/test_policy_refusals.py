from __future__ import annotations

import pytest

from engine.policy.model import PolicyError, parse_policy
from tests.support.golden import golden

MANY = ", ".join(f"{{name: l{n}, keys: [x/l{n}]}}" for n in range(7))

REFUSED = {
    "empty": "",
    "only a comment": "# nothing\n",
    "a list": "- mode: off",
    "a word": "enforce",
    "a number": "5",
    "not YAML": "mode: [",
    "a duplicate key": "mode: off\nmode: enforce",
    "another version": "apiVersion: topogate.dev/v1\nkind: Policies",
    "unknown fields": "modes: off\ntimeouts: {binds: 1s}\nzzz: 1",
    "a wrong mode": "mode: enforcing",
    "a mode of the wrong type": "mode: true",
    "modes of namespaces": "namespaces: {modes: [{namespaces: [a], mode: enforced}, {mode: off}, "
    "{namespaces: [A], mode: off}, {namespaces: [b], modes: off}, {namespaces: [], mode: off}]}",
    "which nodes are named": "messages: {nodes: any, hosts: own}",
    "numbers": "queue: {maxGangPods: 0}\nplanner: {steps: 99999999}",
    "profiles": "planner: {profile: even}\ntopologies: [{name: a, preset: demo, profile: tight}]",
    "profiles of the wrong type": "planner: {profile: [pack]}\ntopologies: [{name: a, preset: demo, profile: 1}]",
    "numbers of the wrong type": "queue: {maxGangPods: '5'}\nplanner: {steps: 1.5}",
    "a huge number": f"queue: {{maxGangPods: {'9' * 60}}}",
    "durations": "timeouts: {bind: 30, hold: 5x, recover: -1s, start: 0s}\nnodes: {settle: 2h}",
    "attempts": "queue: {maxStartAttempts: 0}",
    "durations of the wrong type": "timeouts: {bind: [], hold: true}",
    "sections of the wrong type": "timeouts: 5\nnamespaces: []\ntopologies: {name: a}",
    "lists of the wrong type": "admins: root\nschedulers: [5]\nnamespaces: {exempt: {a: b}}",
    "defaults of the wrong type": "namespaces: {defaults: [{namespaces: [a], annotations: x}, 5, "
    "{namespaces: [a], annotations: [b]}, {namespaces: [a], annotations: true}]}",
    "kinds of the wrong type": "kinds: {a: b}",
    "a kind that is none": "kinds: [5, ~, [], {}]",
    "null in a list": "admins: [~]\ntopologies: [~]",
    "names": 'admins: ["a b", ""]\nnamespaces: {exempt: [Kube, "a/b"]}\nschedulers: []',
    "duplicate names": "admins: [a, a]\nannotations: {dialects: [kai, kai]}",
    "an unknown dialect": "annotations: {dialects: [kueu]}",
    "a topology without levels": "topologies: [{name: a}]",
    "a topology without a name": "topologies: [{preset: demo}]",
    "preset and levels": "topologies: [{name: a, preset: demo, levels: [{name: rack, keys: [x/rack]}]}]",
    "a preset that does not exist": "topologies: [{name: a, preset: dmeo}]",
    "a preset of the wrong type": "topologies: [{name: a, preset: [demo]}, {name: b, preset: {c: d}}]",
    "a preset of the wrong type beside defaults": "topologies: [{name: a, preset: [demo]}]\n"
    "namespaces: {rules: [{namespaces: [a], levels: [rack]}], "
    "defaults: [{namespaces: [a], annotations: {topogate.dev/prefer-topology: rack}}]}",
    "two topologies of one name": "topologies: [{name: a, preset: demo}, {name: a, preset: gke}]",
    "names of topologies and levels": "topologies: [{name: A b, levels: [{name: Rack, keys: [x/rack]}]}]",
    "levels of one name or key": "topologies: [{name: a, levels: [{name: r, keys: [x/r]}, {name: r, keys: [y, x/r]}]}]",
    "the level host": "topologies: [{name: a, levels: [{name: host}, {name: node, keys: [kubernetes.io/hostname]}]}]",
    "the level host by another key": "topologies: [{name: a, levels: [{name: host, keys: [x/host]}]}]",
    "the level auto": "topologies: [{name: a, levels: [{name: auto, keys: [x/auto]}]}]",
    "a level without keys": "topologies: [{name: a, levels: [{name: rack}, {name: row, keys: []}]}]",
    "a key that is a level": "topologies: [{name: a, levels: [{name: rack, keys: [row]}, {name: row, keys: [x/row]}]}]",
    "keys that are no label keys": "topologies: [{name: a, levels: [{name: rack, keys: [x//y]}]}]",
    "too many levels": f"topologies: [{{name: a, levels: [{MANY}]}}]",
    "an empty list of levels": "topologies: [{name: a, levels: []}]",
    "a node selector": "topologies: [{name: a, preset: demo, nodeSelector: {pool: 5, b: ~}}, "
    "{name: b, preset: demo, nodeSelector: {'not a key': x}}]",
    "rules of the wrong type": "namespaces: {rules: [5, {namespaces: a}, {namespaces: [a], levels: rack, allow: no?}]}",
    "a rule without namespaces": "namespaces: {rules: [{levels: [rack]}, {namespaces: []}]}",
    "fields and names of a rule": "namespaces: {rules: [{namespaces: [A, b], level: [rack]}, {namespaces: [c, c]}]}",
    "levels of a rule": "namespaces: {rules: [{namespaces: [a], levels: [rakc, auto, 5, 'a b', rack, rack]}, "
    "{namespaces: [b], levels: []}]}",
    "limits of a rule": "namespaces: {rules: [{namespaces: [a], maxGangPods: -1, maxWaitingGangs: 0}, "
    "{namespaces: [b], maxGangPods: 20000, maxWaitingGangs: 6000}, "
    "{namespaces: [c], maxGangPods: x, maxReservedHosts: -5}]}",
    "limits above those of the queue": "namespaces: {rules: [{namespaces: [a], maxGangPods: 6, maxWaitingGangs: 3}]}\n"
    "queue: {maxGangPods: 5, maxNamespaceGangs: 2}",
    "limits where nothing is allowed": "namespaces: {rules: [{namespaces: [a], allow: false, levels: [rack], "
    "maxGangPods: 5, maxWaitingGangs: 2, maxReservedHosts: 2}]}",
    "a fair order": "queue: {fairness: {mode: fair, weights: [{namespaces: [A], weight: -1}, {namespaces: [a]}, "
    "{weight: 1.5}, {namespaces: [b], weight: 9999, wight: 1}]}}",
    "a fair order of the wrong type": "queue: {fairness: namespaces}",
    "preemption": "preemption: {mode: always, victims: [all], after: -1s, protect: {runningFor: 5, "
    "namespaces: [A, a, a], annotated: sometimes, labels: {}}}",
    "preemption of the wrong type": "preemption: lower-priority",
    "a protection of the wrong type": "preemption: {mode: lower-priority, protect: [prod]}",
    "durations of preemption": "preemption: {after: 169h, protect: {runningFor: 0s}}",
    "preemption where everything is protected": "preemption: {mode: lower-priority, protect: {namespaces: [a, '**']}}",
    "moves": "defragment: {mode: always, after: 169h, maxGangs: 0, protect: {runningFor: 5, labels: {}}, gangs: 3}",
    "moves of the wrong type": "defragment: propose",
    "moves where everything is protected": "defragment: {mode: propose, protect: {namespaces: ['*']}}",
    "a default that its rule forbids": "namespaces: {rules: [{namespaces: [a*], levels: [rack]}, {namespaces: ['*'], "
    "allow: false}], defaults: [{namespaces: [ab, c], annotations: {topogate.dev/require-topology: block}}]}",
    "classes of provisioning": "autoscaling: {provisioningRequest: {className: 'X y', after: 10, parameters: "
    "{'a b': x, c: 5}, fallbacks: [{}, 5, {className: a, after: 5s}]}}",
    "parameters of provisioning": "autoscaling: {provisioningRequest: {className: a, parameters: {ValidUntilSeconds: "
    f"5m}}, fallbacks: [{{className: b, parameters: {{long: {'x' * 256}}}}}]}}}}",
    "classes that fail again": "autoscaling: {provisioningRequest: {className: a, parameters: {b: c}, fallbacks: "
    "[{className: a}, {className: a, parameters: {b: c}}, {className: a, parameters: {}}]}}",
    "fallbacks that are never tried": "autoscaling: {provisioningRequest: {className: "
    "best-effort-atomic-scale-up.autoscaling.x-k8s.io, fallbacks: [{className: check-capacity.autoscaling.x-k8s.io, "
    "parameters: {noRetry: 'false'}}, {className: a}]}}",
    "provisioning for topologies": "topologies: [{name: gpu-a, preset: demo}]\nautoscaling: {topologies: "
    "[{name: gpu-b}, {name: gpu-a, provisioningRequest: {className: a}}, {name: gpu-a}, {provisioningRequest: 5}]}",
    "autoscaling of the wrong type": "autoscaling: {provisioningRequest: [a], topologies: {a: b}}",
    "hostile text": 'mode: "\\e[31m\\u202eevil\\n\\"quoted\\" ' + "x" * 200 + '"',
    "hostile key": '"\\e[31m\\n": 1\n"' + "k" * 200 + '": 2',
}


def refusal(text: str) -> str:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text)
    return str(caught.value)


def test_every_refusal_reads_as_written() -> None:
    """A refused policy names every error by its path, in plain words."""
    golden("policy", {case: refusal(text) for case, text in REFUSED.items()})


@pytest.mark.parametrize("case", list(REFUSED))
def test_no_refusal_holds_jargon_or_control_characters(case: str) -> None:
    """No library's words, no type names, nothing that a terminal would obey."""
    told = refusal(REFUSED[case])
    assert all(line.isprintable() for line in told.split("\n"))
    words = ("str", "int", "dict", "tuple", "NoneType", "None", "pydantic", "validation", "Input should", "Traceback")
    assert not {*words} & {*told.replace(",", " ").replace(";", " ").split()}


def test_faults_of_both_sorts_come_together() -> None:
    """A fault in one field does not hide a contradiction elsewhere; the order is that of the paths."""
    paths = [
        line.split(": ")[0]
        for line in refusal(
            "mode: x\n"
            "topologies: [{name: b, preset: demo}, 5, {name: b, levels: [{name: host}, {name: r, keys: [q]}]}]\n"
            "queue: {maxGangPods: 0}\n"
        ).splitlines()
    ]
    assert paths == ["mode", "queue.maxGangPods", "topologies[1]", "topologies[2].levels[0].name", "topologies[2].name"]


def test_paths_are_ordered_by_number() -> None:
    """Entry 10 comes after entry 9."""
    entries = ", ".join("{name: a, preset: demo}" for _ in range(12))
    lines = refusal(f"topologies: [{entries}]").splitlines()
    assert [line.split(".")[0] for line in lines] == [f"topologies[{n}]" for n in range(1, 12)]


def test_errors_are_bounded() -> None:
    """A text that is all faults gets a hundred of them and the number of the others."""
    lines = refusal("\n".join(f"field{n}: 1" for n in range(1000))).splitlines()
    assert len(lines) == 100
    assert lines[-1] == "policy.yaml: 901 more errors"
