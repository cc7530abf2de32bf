"""The control plane of the cluster tests: one for the session, with a namespace and nodes for each test."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from local.client import Client
from local.controllers.building import Built, ensure_controllers
from local.controllers.catalogue import CONTROLLERS, with_needed
from local.controllers.running import Controllers
from local.controlplane import ControlPlane
from local.helm.building import ensure_helm
from local.modules import ProgramsError
from local.nodes import NODES
from local.programs import ensure_programs
from local.releases import DEFAULT, UnknownRelease, number
from tests.support.charts import Helm
from tests.support.cluster_autoscaler import RealClusterAutoscaler
from tests.support.eventually import eventually
from tests.support.fleet import Fleet, fleet_name
from tests.support.imitations.cluster_autoscaler import ClusterAutoscaler
from tests.support.node_pools import POOL, REQUESTS, NodePool, requests_path
from tests.support.recorder import Recorder
from tests.support.workloads import RESOURCES, collection

Kubectl = Callable[..., subprocess.CompletedProcess[str]]
StartAutoscaler = Callable[..., None]
PROGRAMS = pytest.StashKey[dict[str, Path] | ProgramsError]()
HELM = pytest.StashKey[Path | ProgramsError]()
BUILT = pytest.StashKey[dict[str, Built] | ProgramsError]()
HERE = Path(__file__).parent
# Of the control plane's programs: memory for less collecting of garbage, a quarter of all that these tests compute.
ENVIRONMENT = {"GOGC": "400", "GOMEMLIMIT": "2GiB"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark everything in this folder; skip what needs a newer Kubernetes than the one of `--kubernetes`."""
    release = number(config.option.kubernetes or DEFAULT)
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
            for marker in item.iter_markers("since"):
                minor, why = marker.args
                if release < number(minor):
                    item.add_marker(pytest.mark.skip(reason=f"since Kubernetes {minor}: {why}"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs before the first test: inside one, the build would run into that test's time limit.

    Of the controllers of other kinds, those that a collected test asks for: by a fixture (`jobset`, `mpi_operator`), or
    by the marker `controllers`; Helm by the fixture `helm`.
    """
    if session.config.option.collectonly or not any(item.path.is_relative_to(HERE) for item in session.items):
        return
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    progress = terminal.write_line if terminal else print
    try:
        found = ensure_programs(progress=progress, kubernetes=session.config.option.kubernetes or DEFAULT)
        session.config.stash[PROGRAMS] = found
    except UnknownRelease as error:
        raise pytest.UsageError(f"--kubernetes: {error}") from None
    except ProgramsError as error:
        session.config.stash[PROGRAMS] = session.config.stash[BUILT] = error
        return
    fixtures = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if "helm" in fixtures:
        try:
            session.config.stash[HELM] = ensure_helm(progress=progress)
        except ProgramsError as error:
            session.config.stash[HELM] = error
    marked = {name for item in session.items for marker in item.iter_markers("controllers") for name in marker.args}
    wanted = with_needed(name for name in CONTROLLERS if name.replace("-", "_") in fixtures or name in marked)
    try:
        session.config.stash[BUILT] = ensure_controllers(wanted, kubectl=found["kubectl"], progress=progress)
    except ProgramsError as error:
        session.config.stash[BUILT] = error


@pytest.fixture(scope="session")
def programs(pytestconfig: pytest.Config) -> dict[str, Path]:
    """The control plane's programs by name."""
    found = pytestconfig.stash[PROGRAMS]
    if isinstance(found, ProgramsError):
        raise found
    return found


@pytest.fixture(scope="session")
def helm(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The real Helm, which knows no cluster."""
    found = pytestconfig.stash[HELM]
    if isinstance(found, ProgramsError):
        raise found
    return Helm(found, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def control_plane(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real control plane without nodes, for the whole session."""
    folder = tmp_path_factory.mktemp("control-plane")
    with ControlPlane.start(folder, programs=programs, environment=ENVIRONMENT) as running:
        yield running


@pytest.fixture(scope="module")
def plane(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of a module's own, for what the session's one cannot bear beside its other tests."""
    folder = tmp_path_factory.mktemp("plane")
    with ControlPlane.start(folder, programs=programs, environment=ENVIRONMENT) as running:
        yield running


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    """Where the service would be, an endpoint that writes down what the API server sends."""
    with Recorder(tmp_path_factory.mktemp("recorder")) as running:
        yield running


@pytest.fixture(scope="session")
def built_controllers(pytestconfig: pytest.Config) -> dict[str, Built]:
    """The files of the controllers that this session's tests ask for."""
    found = pytestconfig.stash[BUILT]
    if isinstance(found, ProgramsError):
        raise found
    return found


@pytest.fixture(scope="session")
def controllers(control_plane: ControlPlane, built_controllers: dict[str, Built]) -> Controllers:
    """The controllers of other kinds on the session's control plane, each started by the first test that needs it."""
    return Controllers(control_plane, built_controllers)


@pytest.fixture
def jobset(controllers: Controllers) -> None:
    """The real controller of JobSets runs."""
    controllers.start("jobset")


@pytest.fixture
def lws(controllers: Controllers) -> None:
    """The real controller of LeaderWorkerSets runs."""
    controllers.start("lws")


@pytest.fixture
def training_operator(controllers: Controllers) -> None:
    """The real controller of Kubeflow's training jobs runs."""
    controllers.start("training-operator")


@pytest.fixture
def mpi_operator(controllers: Controllers) -> None:
    """The real controller of MPIJobs runs."""
    controllers.start("mpi-operator")


@pytest.fixture
def kuberay(controllers: Controllers) -> None:
    """The real controller of Ray's kinds runs."""
    controllers.start("kuberay")


@pytest.fixture
def trainer(controllers: Controllers, jobset: None) -> None:
    """The real controller of TrainJobs runs, and that of the JobSets which it makes."""
    controllers.start("trainer")


@pytest.fixture
def appwrapper(controllers: Controllers) -> None:
    """The real controller of AppWrappers runs."""
    controllers.start("appwrapper")


@pytest.fixture
def client(control_plane: ControlPlane) -> Client:
    """The admin's client of the session's control plane; says so when that has died."""
    control_plane.check()
    return control_plane.client


@pytest.fixture
def nodes(client: Client, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Makes this test's nodes: `nodes.grid("2x4x4")`. They go after the namespace and its pods have gone."""
    fleet = Fleet(client, fleet_name(request.node.name, secrets.token_hex(2)))
    yield fleet
    fleet.clear()


@pytest.fixture
def namespace(client: Client, nodes: Fleet) -> Iterator[str]:
    """A namespace of this test's own, in which pods are admitted; emptied and deleted afterwards."""
    name = nodes.name
    client.create("/api/v1/namespaces", {"metadata": {"name": name}})
    eventually(
        lambda: client.find(f"/api/v1/namespaces/{name}/serviceaccounts/default"),
        message=f"the default service account of namespace {name}",
    )
    yield name
    _empty(client, name)


@pytest.fixture
def kubectl(control_plane: ControlPlane, namespace: str) -> Kubectl:
    """kubectl as admin in this test's namespace: `kubectl("apply", "-f", "-", input=text)`."""

    def run(*arguments: str, input: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        return control_plane.kubectl(f"--namespace={namespace}", *arguments, input=input, check=check)

    return run


@pytest.fixture
def start_autoscaler(
    pytestconfig: pytest.Config, control_plane: ControlPlane, client: Client, nodes: Fleet, namespace: str
) -> Iterator[StartAutoscaler]:
    """`start_autoscaler(pool, ...)` runs a node autoscaler for the rest of the test; its nodes go with the others.

    It is imitated, or the real program of `--cluster-autoscaler`. What only the imitation can do (`booking`, `orders`)
    skips the test then.
    """
    program = pytestconfig.getoption("cluster_autoscaler")
    REQUESTS.install(client)

    def start(*pools: NodePool, **options: float) -> None:
        if program is None:
            stack.enter_context(ClusterAutoscaler(client, namespace, pools, **options))
            return
        if special := options.keys() - {"retry"}:
            pytest.skip(f"the real autoscaler cannot be told {', '.join(sorted(special))}")
        stack.enter_context(RealClusterAutoscaler(control_plane, program, namespace, pools, **options))

    with ExitStack() as stack:
        yield start
        for one in client.items(requests_path(namespace)):
            client.delete(f"{requests_path(namespace)}/{one['metadata']['name']}")
    nodes.names += [one["metadata"]["name"] for one in client.items(NODES, selector=POOL)]


def _empty(client: Client, namespace: str) -> None:
    """Delete workloads, then pods by force, and wait for the pods: without their nodes they would stay for a minute.

    The namespace itself goes in its own time; nobody uses its name again.
    """
    for kind in reversed(RESOURCES):  # owners come after what they own
        client.delete(collection(kind, namespace))
    pods = f"/api/v1/namespaces/{namespace}/pods"

    def gone() -> bool:
        if not client.items(pods):
            return True
        client.delete(pods, grace=0)
        return False

    eventually(gone, message=f"the pods of namespace {namespace} are gone")
    client.delete(f"/api/v1/namespaces/{namespace}")
