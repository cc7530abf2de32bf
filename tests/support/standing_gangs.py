"""Gangs that stand while something happens to the service: one runs, one waits, others are in the way."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.eventually import eventually
from tests.support.gangs import Namespace, require
from tests.support.invariants import GANG_LABEL
from tests.support.raw_pods import occupy
from tests.support.steady_load import SteadyLoad
from tests.support.witness import Witness

RUNS, WAITS = "runs", "waits"
LAYOUT = "1x2x6"
SETTLED = 180.0  # seconds: a Lease runs out, processes start, and the machine has other work


@dataclass(frozen=True, slots=True)
class StandingGangs:
    """Two racks of six hosts, of which others have one each: a gang of two runs, one that needs a whole rack waits."""

    gangs: Namespace

    def start(self) -> None:
        """Make the hosts, the pods of others, and the gangs."""
        client, found = self.gangs.client, self.gangs
        client.create("/api/v1/namespaces", {"metadata": {"name": found.name}})
        account = f"/api/v1/namespaces/{found.name}/serviceaccounts/default"
        eventually(lambda: client.find(account), SETTLED, "pods are admitted")
        hosts = found.fleet.grid(LAYOUT)
        for host in (hosts[0], hosts[6]):
            occupy(client, found.name, host, gpus=8)
        found.pods_seen()
        self._submit(RUNS, 2)
        found.all_bound(RUNS, 2, SETTLED)
        self._submit(WAITS, 6)
        found.waits(WAITS, timeout=SETTLED)

    def renew(self) -> dict[str, str]:
        """The gang that runs is deleted and submitted again; its pods."""
        found = self.gangs
        found.client.delete(f"{found.jobs_path}/{RUNS}")
        eventually(lambda: not found.pods(RUNS), SETTLED, f"the pods of {RUNS} are gone")
        self._submit(RUNS, 2)
        found.all_bound(RUNS, 2, SETTLED)
        return self.running()

    def _submit(self, name: str, pods: int) -> None:
        self.gangs.submit(name, pods=pods, annotations=require("rack"), pod_labels={GANG_LABEL: name})

    def running(self) -> dict[str, str]:
        """Uid -> host of the pods of the gang that runs."""
        return {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in self.gangs.pods(RUNS)}

    def witness(self) -> Witness:
        """One that looks at their namespace."""
        return Witness(self.gangs.client, self.gangs.name, {}, {}, {}, (self.gangs.jobs_path,))

    def await_rest(self, witness: Witness, load: SteadyLoad) -> None:
        """Wait until no invariant is broken, each gang of the load is whole or waits, and the others are as before."""
        eventually(lambda: self._at_rest(witness, load), SETTLED, "everything is in order")

    def _at_rest(self, witness: Witness, load: SteadyLoad) -> bool:
        scene = witness.scene()
        assert witness.invariants.rest(scene, [RUNS, WAITS, *load.live]) == []
        for name in load.live:
            sight = scene.gangs[name]
            assert len(sight.bound) == sight.wanted or sight.told[0] == "Waiting", f"{name}: {sight.summary()}"
        assert scene.gangs[WAITS].told[0] == "Waiting"
        assert scene.gangs[RUNS].told[0] == "Running"
        return True

    def clear_load(self) -> None:
        """The gangs of a load go, with their pods."""
        client = self.gangs.client
        for job in client.items(self.gangs.jobs_path):
            if job["metadata"]["name"] not in (RUNS, WAITS):
                client.delete(f"{self.gangs.jobs_path}/{job['metadata']['name']}")
        pods = f"/api/v1/namespaces/{self.gangs.name}/pods"
        theirs = f"{GANG_LABEL},{GANG_LABEL} notin ({RUNS},{WAITS})"
        eventually(lambda: not client.items(pods, selector=theirs), SETTLED, "the pods of the load are gone")
