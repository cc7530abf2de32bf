"""The controllers that can be run here: one entry each, all data.

Module versions are exact, and each module's checksum is pinned as go.sum would; its dependencies are held by the go.sum
inside the module. `seconds` is what building took with empty caches on 2 busy cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from local.modules import Substitution
from local.releases import versions


@dataclass(frozen=True, slots=True)
class Probe:
    """An object that a working controller answers: with the object at `answer`, or where that is None in its status.

    It stands in the namespace `default` and makes no pods. `needs` are the objects (collection -> body) that it needs
    itself, which go with it. `$name` is the probe's name.
    """

    path: str
    body: Mapping[str, Any]
    answer: str | None = None
    needs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Controller:
    """What it takes to build and to run one controller of `kinds` (names of entries in engine/kinds/kinds.yaml).

    `manifests` is the module's own kustomization; its objects in `without` (names) are left out. In `arguments` and
    `configuration` (a file that is JSON, `$configuration` its path) `$webhook_port`, `$health_port` and `$certificates`
    (a folder with ca.crt, tls.crt, tls.key) are filled in. A controller that keeps its certificates itself reads them
    from the Secret `secret` and looks for a CA called `authority` and a certificate for `service`. The controllers in
    `after` must run before it: it watches their kinds.
    """

    name: str
    kinds: tuple[str, ...]
    module: str
    version: str
    checksum: str
    package: str
    manifests: str
    seconds: int
    arguments: tuple[str, ...]
    probe: Probe
    configuration: Mapping[str, Any] = field(default_factory=dict)
    substitutions: tuple[Substitution, ...] = ()
    without: frozenset[str] = frozenset()
    secret: str = ""
    authority: str = "topogate-local"
    service: str = "localhost"
    after: tuple[str, ...] = ()


def _configuration(group: str) -> dict[str, Any]:
    """The configuration file that JobSet and LeaderWorkerSet share but for its group."""
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "127.0.0.1:$health_port"},
        "webhook": {"host": "127.0.0.1", "port": "$webhook_port", "certDir": "$certificates"},
        "internalCertManagement": {"enable": False},
        # As the control plane's own controllers: a test shall not measure how patient a client is.
        "clientConnection": {"qps": 500, "burst": 500},
    }


def _template(container: str = "main") -> dict[str, Any]:
    return {"spec": {"restartPolicy": "Never", "containers": [{"name": container, "image": "example.com/none"}]}}


JOBSET: Final = Controller(
    name="jobset",
    kinds=("jobset",),
    module="sigs.k8s.io/jobset",
    version="v0.12.0",
    checksum="h1:YYPuV0px8Ongq/RXmJg6V0w2UC67aiR+rCMD06vhQQQ=",
    package=".",
    manifests="config/default",
    seconds=180,
    arguments=("--config=$configuration",),
    configuration=_configuration("config.jobset.x-k8s.io"),
    probe=Probe(
        path="/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
        body={
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "spec": {
                "suspend": True,
                "replicatedJobs": [{"name": "a", "replicas": 1, "template": {"spec": {"template": _template()}}}],
            },
        },
        answer="/apis/batch/v1/namespaces/default/jobs/$name-a-0",
    ),
)
LWS: Final = Controller(
    name="lws",
    kinds=("leaderworkerset",),
    module="sigs.k8s.io/lws",
    version="v0.9.0",
    checksum="h1:DcJCgxjjoGOx//QHZkeKpyiblxYq70aCRZNYSfykWyI=",
    package="./cmd",
    manifests="config/default",
    seconds=110,
    arguments=("--config=$configuration",),
    configuration=_configuration("config.lws.x-k8s.io"),
    probe=Probe(
        path="/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets",
        body={
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "spec": {
                "replicas": 0,
                "leaderWorkerTemplate": {
                    "size": 2,
                    "workerTemplate": {"spec": {"containers": _template()["spec"]["containers"]}},
                },
            },
        },
        answer="/apis/apps/v1/namespaces/default/statefulsets/$name",
    ),
)
TRAINING_OPERATOR: Final = Controller(
    name="training-operator",
    kinds=("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob"),
    module="github.com/kubeflow/training-operator",
    version="v1.9.3",
    checksum="h1:aaSHqskOtCY8Dn8sVd+l9p5XAczW6O0nYMPjVLAw/lc=",
    package="./cmd/training-operator.v1",
    manifests="manifests/overlays/standalone",
    seconds=175,
    arguments=(
        "--metrics-bind-address=0",
        "--health-probe-bind-address=127.0.0.1:$health_port",
        "--webhook-server-port=$webhook_port",
        "--kube-api-qps=500",
        "--kube-api-burst=500",
        *(f"--enable-scheme={kind}" for kind in ("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob")),
    ),
    substitutions=(
        # One folder for all instances of a machine otherwise; the webhook server itself looks below TMPDIR.
        Substitution(
            "pkg/cert/cert.go",
            "CertDir:        certDir,",
            'CertDir:        os.TempDir() + "/k8s-webhook-server/serving-certs",',
        ),
        Substitution(
            "cmd/training-operator.v1/main.go",
            "Port: webhookServerPort,",
            'Host: "127.0.0.1", Port: webhookServerPort,',
        ),
    ),
    # The MPIJob of mpi-operator has the same name and another version: there can be one in a cluster.
    without=frozenset({"mpijobs.kubeflow.org"}),
    secret="training-operator-webhook-cert",  # noqa: S106 - a name
    authority="training-operator-ca",
    service="training-operator.kubeflow.svc",
    probe=Probe(
        path="/apis/kubeflow.org/v1/namespaces/default/pytorchjobs",
        body={
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "spec": {
                "runPolicy": {"suspend": True},
                "pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": _template("pytorch")}},
            },
        },
    ),
)
MPI_OPERATOR: Final = Controller(
    name="mpi-operator",
    kinds=("mpijob",),
    module="github.com/kubeflow/mpi-operator",
    version="v0.8.2",
    checksum="h1:7PVtV31iX3LSVW0BqRQ64w/NYNfAgP86Bmua2OEi5lg=",
    package="./cmd/mpi-operator",
    manifests="manifests/overlays/standalone",
    seconds=250,
    arguments=(
        "--lock-namespace=mpi-operator",
        "--kube-api-qps=500",
        "--kube-api-burst=500",
        "--controller-queue-rate-limit=500",
        "--controller-queue-burst=500",
    ),
    substitutions=(
        # A fixed port, open to the network: the second instance on a machine would end at once.
        Substitution("cmd/mpi-operator/app/server.go", "healthCheckPort = 8080", "healthCheckPort = 0"),
        Substitution("cmd/mpi-operator/app/server.go", 'fmt.Sprintf(":%d"', 'fmt.Sprintf("127.0.0.1:%d"'),
    ),
    probe=Probe(
        path="/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs",
        body={
            "apiVersion": "kubeflow.org/v2beta1",
            "kind": "MPIJob",
            "spec": {
                "runPolicy": {"suspend": True},
                "mpiReplicaSpecs": {
                    "Launcher": {"replicas": 1, "template": _template()},
                    "Worker": {"replicas": 1, "template": _template()},
                },
            },
        },
    ),
)
KUBERAY: Final = Controller(
    name="kuberay",
    kinds=("raycluster", "rayjob", "rayservice"),
    module="github.com/ray-project/kuberay/ray-operator",
    version="v1.6.2",
    checksum="h1:XUckRswLMyk71D00L62d2Vanh0fVkNqu56+IF/rr+O0=",
    package=".",
    manifests="config/default",
    seconds=180,
    arguments=(
        "--metrics-addr=0",
        "--health-probe-bind-address=127.0.0.1:$health_port",
        "--enable-leader-election=false",
        "--feature-gates=RayClusterStatusConditions=true",
        "--qps=500",
        "--burst=500",
    ),
    probe=Probe(
        path="/apis/ray.io/v1/namespaces/default/rayclusters",
        body={
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "spec": {"suspend": True, "headGroupSpec": {"rayStartParams": {}, "template": _template()}},
        },
    ),
)
TRAINER: Final = Controller(
    name="trainer",
    kinds=("trainjob",),
    module="github.com/kubeflow/trainer/v2",
    version="v2.3.0",
    checksum="h1:Je+e7zvTLzB4qW09J1fB7pZrqvPtWuGng2NqdN5p5QU=",
    package="./cmd/trainer-controller-manager",
    manifests="manifests/overlays/manager",
    seconds=200,
    arguments=("--config=$configuration",),
    configuration={
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "127.0.0.1:$health_port"},
        "webhook": {"host": "127.0.0.1", "port": "$webhook_port"},
        "certManagement": {"enable": False},
        "clientConnection": {"qps": 500, "burst": 500},
    },
    substitutions=(
        # It would be loaded from the network, and it runs already.
        Substitution("manifests/overlays/manager/kustomization.yaml", "  - ../../third-party/jobset #", "  #"),
    ),
    after=("jobset",),
    probe=Probe(
        path="/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs",
        body={
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "spec": {"suspend": True, "runtimeRef": {"kind": "TrainingRuntime", "name": "$name"}},
        },
        answer="/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/$name",
        needs={
            "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainingruntimes": {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainingRuntime",
                "metadata": {"labels": {"trainer.kubeflow.org/framework": "none"}},
                "spec": {
                    "mlPolicy": {"numNodes": 1},
                    "template": {
                        "spec": {
                            "replicatedJobs": [
                                {
                                    "name": "node",
                                    "template": {
                                        "metadata": {
                                            "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
                                        },
                                        "spec": {"template": _template("node")},
                                    },
                                }
                            ]
                        }
                    },
                },
            }
        },
    ),
)
APPWRAPPER: Final = Controller(
    name="appwrapper",
    kinds=("appwrapper",),
    module="github.com/project-codeflare/appwrapper",
    version="v1.2.2",
    checksum="h1:W5Dm0J8cOUPnb+Jo9rkHcvAzY+GkECy/vdGmozvGKHI=",
    package="./cmd",
    manifests="config/default",
    seconds=150,
    arguments=("--webhook-port=$webhook_port",),
    substitutions=(
        # Fixed ports and folders that instances of one machine would share, and the namespace of a pod.
        Substitution("cmd/main.go", "Port:    9443,", 'Host: "127.0.0.1", Port: *webhookPort,'),
        Substitution(
            "cmd/main.go",
            "\tvar configMapName string\n",
            '\tvar configMapName string\n\twebhookPort := flag.Int("webhook-port", 9443, "")\n',
        ),
        Substitution("cmd/main.go", 'ns := os.Getenv("NAMESPACE")', 'ns := "appwrapper-system"'),
        Substitution("pkg/config/config.go", 'BindAddress: ":8443"', 'BindAddress: "0"'),
        Substitution("pkg/config/config.go", 'BindAddress: ":8081"', 'BindAddress: "0"'),
        Substitution("pkg/config/config.go", '\t"fmt"\n', '\t"fmt"\n\t"os"\n'),
        Substitution(
            "pkg/config/config.go",
            '"/tmp/k8s-webhook-server/serving-certs"',
            'os.TempDir() + "/k8s-webhook-server/serving-certs"',
        ),
    ),
    secret="appwrapper-webhook-server-cert",  # noqa: S106 - a name
    authority="appwrapper-ca",
    service="appwrapper-webhook-service.appwrapper-system.svc",
    probe=Probe(
        path="/apis/workload.codeflare.dev/v1beta2/namespaces/default/appwrappers",
        body={
            "apiVersion": "workload.codeflare.dev/v1beta2",
            "kind": "AppWrapper",
            "spec": {
                "suspend": True,
                "components": [
                    {
                        "template": {
                            "apiVersion": "batch/v1",
                            "kind": "Job",
                            "metadata": {"name": "$name"},
                            "spec": {"template": _template()},
                        }
                    }
                ],
            },
        },
    ),
)
CONTROLLERS: Final = {
    controller.name: controller
    for controller in (JOBSET, LWS, TRAINING_OPERATOR, MPI_OPERATOR, KUBERAY, TRAINER, APPWRAPPER)
}


def with_needed(names: Iterable[str]) -> tuple[str, ...]:
    """Return these controllers and those that must run before them, each after what it needs."""
    found: dict[str, None] = {}
    for name in names:
        found |= dict.fromkeys((*with_needed(CONTROLLERS[name].after), name))
    return tuple(found)


KUBERNETES: Final = ("job", "cronjob", "statefulset", "deployment", "pod")
"""The kinds whose controllers are Kubernetes' own."""
IMITATED: Final = {"volcano-job": "Volcano 1.16", "sparkapplication": "spark-operator 2.5"}
"""The kinds whose controllers are imitated in tests (tests/support/imitations), and what the imitation follows."""


def how_tested() -> dict[str, str]:
    """Return with what each kind (name of its entry in the registry) is tested: the real controller or an imitation."""
    found = dict.fromkeys(KUBERNETES, f"real: Kubernetes {versions()['k8s.io/kubernetes']}")
    for controller in CONTROLLERS.values():
        found |= dict.fromkeys(controller.kinds, f"real: {controller.name} {controller.version}")
    return found | {kind: f"imitated: {source}" for kind, source in IMITATED.items()}
