"""From each of the last releases to this one and back, under a load, with gangs that run and wait: `make test-faults`.

On control planes of their own, in the order of docs/tasks/admin/install.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from local.controlplane import ControlPlane
from local.service import NAMESPACE, ROOT, Service
from tests.cluster.conftest import ENVIRONMENT
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.gangs import Namespace
from tests.support.releases import Release, releases
from tests.support.standing_gangs import SETTLED, StandingGangs
from tests.support.steady_load import SteadyLoad

POLICY = "topologies: [{name: default, preset: demo}]\nnodes: {settle: 0s}\n"
FIRST = ("CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
LAST = (
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


@pytest.fixture(params=releases(), ids=lambda one: str(one.name))
def release(request: pytest.FixtureRequest) -> Release:
    """One that this clone has."""
    if request.config.getoption("--scenarios") != "all":
        pytest.skip("takes minutes: make test-faults, or --scenarios all")
    found: Release = request.param
    if not found.known:
        pytest.skip(f"this clone has no commit {found.commit[:8]}: git fetch --unshallow")
    return found


@pytest.fixture
def plane(programs: dict[str, Path], tmp_path: Path, release: Release) -> Iterator[ControlPlane]:
    """A control plane without anything."""
    with ControlPlane.start(tmp_path / "plane", programs=programs, environment=ENVIRONMENT) as running:
        yield running


@pytest.fixture
def service(plane: ControlPlane, release: Release, tmp_path: Path) -> Iterator[Service]:
    """Two replicas of the release, with its manifests."""
    installed = Service.install(plane, root=release.unpack(tmp_path / "release"))
    maps = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    plane.client.create(maps, {"metadata": {"name": "topogate-policy"}, "data": {"policy.yaml": POLICY}})
    try:
        installed.start(2)
        eventually(installed.leader, SETTLED, "a replica leads")
        yield installed
    finally:
        installed.stop()


def apply(service: Service, kinds: tuple[str, ...]) -> None:
    """Apply the manifests of these kinds."""
    wanted = [one for one in yaml.safe_load_all(service.manifests()) if one["kind"] in kinds]
    assert wanted
    service.control_plane.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", input=yaml.safe_dump_all(wanted)
    )


def roll(service: Service, load: SteadyLoad) -> None:
    """Replace one replica after the other."""
    for number in sorted(service.replicas):
        service.replicas[number].terminate()
        load.goes_on(10)
        service.start(2)
        load.goes_on(10)
    eventually(service.leader, SETTLED, "a replica leads")


def runs(service: Service, root: Path) -> bool:
    """Whether the code under `root` is what all replicas run."""
    paths = [Path(f"/proc/{one.child.process.pid}/environ").read_bytes() for one in service.running()]
    return all(f"PYTHONPATH={root}\0".encode() in environment for environment in paths)


def upgrade(service: Service, load: SteadyLoad) -> None:
    """Rights and fields first, then the replicas, then what they are sent."""
    apply(service, FIRST)
    roll(service, load)
    apply(service, LAST)


def downgrade(service: Service, load: SteadyLoad) -> None:
    """The reverse."""
    apply(service, LAST)
    roll(service, load)
    apply(service, FIRST)


def test_nothing_is_lost_by_an_upgrade_and_its_undoing(plane: ControlPlane, service: Service, release: Release) -> None:
    """No call fails, what runs runs on untouched, what waits waits on, new gangs are placed: there and back."""
    old = service.root
    standing = StandingGangs(Namespace(plane.client, "load", Fleet(plane.client, "load")))
    standing.start()
    running = standing.running()

    def step(what: str, root: Path, change: Callable[[Service, SteadyLoad], None]) -> None:
        service.root = root
        load, witness = SteadyLoad(plane.client, standing.gangs), standing.witness()
        with witness, load:
            load.goes_well()
            change(service, load)
            eventually(service.injected, SETTLED, "the CA bundle is in the configurations")
            load.goes_well()
        assert runs(service, root)
        print(f"\n{what} {release.name}: {load.summary()}")
        assert load.failed() == []
        assert witness.breaches == []
        standing.await_rest(witness, load)
        assert standing.running() == running
        standing.clear_load()

    step("upgrade from", ROOT, upgrade)
    step("downgrade to", old, downgrade)
