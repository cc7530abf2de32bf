"""The command lines of the control plane's programs, as pure functions of where things are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local.credentials import Credentials

STAGES = Path(__file__).parent / "stages"
LEASE_SECONDS = 40  # as a kubelet's
SIMULATED: Final = "kwok.x-k8s.io/node"  # the label of nodes whose kubelet kwok plays

# The Job controller and the scheduler hold themselves to 20 and 50 requests a second: a 512-pod Job would take 25 s,
# and every test would measure that.
UNTHROTTLED = ["--kube-api-qps=2000", "--kube-api-burst=4000"]


@dataclass(frozen=True, slots=True)
class Layout:
    """One instance: its folder, its programs (name -> file), its credentials and its ports."""

    directory: Path
    programs: Mapping[str, Path]
    credentials: Credentials
    etcd_port: int
    etcd_peer_port: int
    api_port: int

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return f"https://127.0.0.1:{self.api_port}"

    def kubeconfig(self, name: str) -> Path:
        """The kubeconfig of one of our programs."""
        return self.directory / f"{name}.kubeconfig"


def etcd(layout: Layout) -> list[str]:
    """One member, whose data nobody keeps: no fsync."""
    client = f"http://127.0.0.1:{layout.etcd_port}"
    peer = f"http://127.0.0.1:{layout.etcd_peer_port}"
    return [
        str(layout.programs["etcd"]),
        "--name=local",
        f"--data-dir={layout.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=local={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def api_server(layout: Layout, extra: Sequence[str] = ()) -> list[str]:
    """RBAC, service accounts and the default admission plugins, as in a real cluster."""
    credentials = layout.credentials
    return [
        str(layout.programs["kube-apiserver"]),
        f"--etcd-servers=http://127.0.0.1:{layout.etcd_port}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.api_port}",
        f"--tls-cert-file={credentials.serving_certificate}",
        f"--tls-private-key-file={credentials.serving_key}",
        f"--cert-dir={credentials.directory}",
        f"--token-auth-file={credentials.token_file}",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={credentials.service_account_public_key}",
        f"--service-account-signing-key-file={credentials.service_account_key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        # There is no pod network: an endpoint of the `kubernetes` Service would lead nowhere.
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
        "--profiling=false",
        *extra,
    ]


def controller_manager(layout: Layout) -> list[str]:
    """All default controllers, each under its own service account, so that "user or controller?" has a real answer."""
    credentials = layout.credentials
    return [
        str(layout.programs["kube-controller-manager"]),
        f"--kubeconfig={layout.kubeconfig('kube-controller-manager')}",
        "--leader-elect=false",
        "--secure-port=0",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={credentials.service_account_key}",
        f"--root-ca-file={credentials.ca_certificate}",
        "--profiling=false",
        *UNTHROTTLED,
    ]


def scheduler(layout: Layout) -> list[str]:
    """The stock scheduler in its default profile."""
    return [
        str(layout.programs["kube-scheduler"]),
        f"--kubeconfig={layout.kubeconfig('kube-scheduler')}",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
        *UNTHROTTLED,
    ]


def kwok(layout: Layout) -> list[str]:
    """The kubelets of all nodes that say so by annotation; what they do stands in `stages/`."""
    return [
        str(layout.programs["kwok"]),
        f"--kubeconfig={layout.kubeconfig('kwok')}",
        *(f"--config={path}" for path in sorted(STAGES.glob("*.yaml"))),
        # By label, not by annotation or Lease: of a node that loses it the API server tells that it is gone. Whether
        # kwok looks at the Lease of a pod's node is decided anew at each of its starts, by the order of a Go map.
        f"--manage-nodes-with-label-selector={SIMULATED}=fake",
        f"--node-lease-duration-seconds={LEASE_SECONDS}",
    ]
