"""What holds in every cluster with the service, whatever happened to it: held against one snapshot of a namespace.

`Invariants.moment` is what holds at every revision of the store, `Invariants.rest` what holds besides when nothing
happens any more. Both return lines of text, one for each breach. Tests that know more of their gangs add to it
(witness.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from engine.api.names import REVISION
from local.client import Client
from local.nodes import NODES
from tests.support.gangs import Json
from tests.support.raw_placements import placements_path, ranks
from tests.support.raw_pods import GPU, ended, gpus, held, host
from tests.support.sights import Sight

# On the pods of every gang of these tests, and on no others: it does not rest on marks of the service.
GANG_LABEL = "example.com/gang"
MARKS = "topogate.dev/"
LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"


@dataclass(frozen=True, slots=True)
class Scene:
    """One namespace at one revision."""

    revision: str
    gangs: Mapping[str, Sight]  # by name
    others: tuple[Json, ...]  # pods that ask for nothing
    pods: tuple[Json, ...]
    hosts: Mapping[str, int]  # name -> GPUs


def read_scene(client: Client, namespace: str, workloads: Sequence[str]) -> Scene:
    """Read a namespace as it stands; `workloads` are the paths of the collections in which gangs are.

    All lists are of one revision, so that nothing is counted twice or missed between two of them.
    """
    listed: Json = client.get(placements_path(namespace))
    revision = listed["metadata"]["resourceVersion"]
    at = {"resourceVersion": revision, "resourceVersionMatch": "Exact"}
    found = [one for path in workloads for one in client.get(path, query=at)["items"]]
    pods = client.get(f"/api/v1/namespaces/{namespace}/pods", query=at)["items"]
    nodes = client.get(NODES, query=at)["items"]
    placements = {one["spec"]["workload"]["uid"]: one for one in listed["items"]}
    of: dict[str, list[Json]] = defaultdict(list)
    groups = {one["metadata"]["name"]: one["metadata"]["uid"] for one in found if "leaderWorkerTemplate" in one["spec"]}
    for pod in pods:
        labels = pod["metadata"].get("labels", {})
        of[labels.get(JOBSET_UID) or groups.get(labels.get(LWS_NAME)) or _owner(pod)].append(pod)
    gangs = {
        one["metadata"]["name"]: Sight(one, placements.get(uid), tuple(of[uid]))
        for one in found
        if not _owner(one)
        for uid in (one["metadata"]["uid"],)
    }
    return Scene(
        revision,
        gangs,
        tuple(pod for pod in pods if GANG_LABEL not in pod["metadata"].get("labels", {})),
        tuple(pods),
        {node["metadata"]["name"]: int(node["status"]["allocatable"].get(GPU, 0)) for node in nodes},
    )


@dataclass(slots=True)
class Invariants:
    """Holds one scene after the other against the invariants; it remembers which gangs have started."""

    _started: set[str] = field(default_factory=set)

    def moment(self, scene: Scene) -> list[str]:
        """What holds at every moment: no host over capacity, no gang started in part, nobody else touched."""
        found = [*overbooked(scene), *held_strangers(scene), *slots_used_twice(scene)]
        for name, sight in scene.gangs.items():
            found += self._begun(name, sight)
        return found

    def rest(self, scene: Scene, submitted: Collection[str] = ()) -> list[str]:
        """What holds besides, when nothing happens any more; `submitted` are the gangs that nobody has deleted."""
        found = [*self.moment(scene), *lost(scene, submitted)]
        for name, sight in scene.gangs.items():
            found += [*outside_placement(name, sight), *bound_in_part(name, sight), *phase_disagrees(name, sight)]
        return found

    def _begun(self, name: str, sight: Sight) -> Iterator[str]:
        """At its first release all of a gang has slots; whatever is released has a pin."""
        released = sight.released
        if not released:
            if sight.suspended or not sight.live:
                self._started.discard(sight.uid)
            return
        if loose := [pod["metadata"]["name"] for pod in released if host(pod) is None]:
            yield f"{name}: released without a pin: {loose}"
        if sight.uid in self._started or sight.suspended or sight.over or by_withdrawn_plan(sight):
            return
        self._started.add(sight.uid)
        slots = sight.planned
        if slots is None:
            yield f"{name}: starts without slots: {sight.summary()}"
        elif sum(slot["count"] for slot in slots) < min(sight.requested, sight.wanted):
            yield f"{name}: starts with slots for a part of it: {sight.summary()}"


def by_withdrawn_plan(sight: Sight) -> bool:
    """All pods without our gate are released by a plan that the leader withdrew in that moment.

    A replica had not seen it yet: such pods go again. Only of workloads that nobody can suspend.
    """
    if "suspend" in sight.workload["spec"] or sight.placement is None or sight.planned is not None:
        return False
    revisions = [pod["metadata"].get("annotations", {}).get(REVISION) for pod in sight.released]
    return all(one is not None and int(one) < sight.placement["metadata"]["generation"] for one in revisions)


def overbooked(scene: Scene) -> Iterator[str]:
    """Hosts of which pods of gangs and slots together ask for more than there is.

    A pod on its way shares the room of one of its gang that is going: it is bound when that one is gone. One that is
    being deleted and was never bound needs none: the API server refuses its binding.
    """
    used: Counter[str] = Counter()
    going: Counter[tuple[str, str]] = Counter()
    ours = [pod for pod in scene.pods if GANG_LABEL in pod["metadata"].get("labels", {}) and not ended(pod)]
    for pod in sorted(ours, key=lambda pod: not pod["spec"].get("nodeName")):
        if (where := host(pod)) is None:
            continue
        place = (pod["metadata"]["labels"][GANG_LABEL], where)
        if not pod["spec"].get("nodeName") and "deletionTimestamp" in pod["metadata"]:
            continue
        if not pod["spec"].get("nodeName") and going[place]:
            going[place] -= 1
            continue
        used[where] += gpus(pod)
        going[place] += "deletionTimestamp" in pod["metadata"] and bool(pod["spec"].get("nodeName"))
    reserved: Counter[str] = Counter()
    for sight in scene.gangs.values():
        each = gpus(sight.template)
        for where, count in sight.reserved().items():
            reserved[where] += each * count
    for where in scene.hosts.keys() & (used.keys() | reserved.keys()):
        if used[where] + reserved[where] > scene.hosts[where]:
            there = [name for name, sight in scene.gangs.items() if where[-8:] in sight.summary()]
            yield f"{where}: {used[where]} GPUs used, {reserved[where]} reserved, by {there or 'deleted gangs'}"


def slots_used_twice(scene: Scene) -> Iterator[str]:
    """Ranks that stand in two slots of a gang, and those of which two live pods have left the gate."""
    for name, sight in scene.gangs.items():
        if not sight.ranked:
            continue
        slots = Counter(one for slot in sight.planned or () for one in ranks(slot["ranks"]))
        pods = Counter(sight.rank(pod) for pod in sight.released)
        for what, counted in (("slots", slots), ("pods", pods)):
            if twice := sorted(one for one, count in counted.items() if count > 1 and one >= 0):
                yield f"{name}: two {what} for ranks {twice}: {sight.summary()}"


def held_strangers(scene: Scene) -> Iterator[str]:
    """Pods that ask for nothing and are held, or marked, all the same."""
    for pod in scene.others:
        marks = [key for key in pod["metadata"].get("annotations", {}) if key.startswith(MARKS)]
        if held(pod) or marks:
            yield f"{pod['metadata']['name']} is not ours and was changed"


def outside_placement(name: str, sight: Sight) -> Iterator[str]:
    """Bound pods on hosts where their gang has no slot for them."""
    slots = Counter[str]()
    for slot in sight.planned or ():
        slots[slot["domain"][-1]] += slot["count"]
    there = Counter(str(pod["spec"]["nodeName"]) for pod in sight.bound)
    if more := there - slots:
        yield f"{name}: bound outside its Placement, on {dict(more)}: {sight.summary()}"


def bound_in_part(name: str, sight: Sight) -> Iterator[str]:
    """Gangs of which some pods are bound, fewer than must start together, and that do not say so."""
    least = min(sight.requested, sight.wanted)
    if 0 < len(sight.bound) < least and sight.told[0] != "Incomplete" and not sight.over:
        yield f"{name}: {len(sight.bound)} pods are bound, {least} start together: {sight.summary()}"


def phase_disagrees(name: str, sight: Sight) -> Iterator[str]:
    """Phases that the pods of the gang contradict, and waits without a reason."""
    phase, reason, message = sight.told
    wrong = {
        "Waiting": sight.bound != () or not (reason and message),
        "Running": len(sight.bound) < min(sight.requested, sight.wanted),
        "Incomplete": not (reason and message),
        "Finished": sight.bound != (),
    }
    if not sight.over and wrong.get(phase, False):
        yield f"{name}: says {phase}: {sight.summary()}"


def lost(scene: Scene, submitted: Collection[str]) -> Iterator[str]:
    """Gangs that are gone though nobody deleted them, and those that nobody takes care of."""
    for name in sorted(set(submitted) - scene.gangs.keys()):
        yield f"{name}: it was submitted, and is gone"
    for name, sight in scene.gangs.items():
        cared = sight.placement is not None or (sight.suspended and not sight.held_by_us)
        if not sight.over and not cared:
            yield f"{name}: it has no Placement: {sight.summary()}"


def _owner(one: Json) -> str:
    """The uid of the controller of an object; "" without one."""
    return next((str(ref["uid"]) for ref in one["metadata"].get("ownerReferences", []) if ref.get("controller")), "")
