"""More reviews than the service can answer, all from one address: the tenants take turns."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.replica import Replica, api_server_request, read_answer, request_bytes

FORMS = {"as an API server writes it": api_server_request, "in another form": request_bytes}


@pytest.fixture
def replica(folder: Path) -> Iterator[Replica]:
    """A server that answers one review at a time."""
    with Replica(folder, threads=1) as running:
        yield running


def review(uid: str, *, namespace: str, name: str = "hold") -> bytes:
    """As the API server writes it: without spaces, the fields in this order."""
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {"uid": uid, "kind": kind, "name": name, "namespace": namespace, "operation": "CREATE"}
    user = {"username": "system:serviceaccount:kube-system:job-controller", "groups": ["system:authenticated"]}
    body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {**request, "userInfo": user}}
    body["request"]["object"] = {"metadata": {"namespace": namespace}, "spec": {"containers": []}}
    return json.dumps(body, separators=(",", ":")).encode()


def answered(client: ssl.SSLSocket) -> str:
    status, body = read_answer(client)
    response = json.loads(body)["response"]
    assert (status, response["allowed"]) == (200, True)
    return str(response["uid"])


@pytest.mark.parametrize("form", FORMS)
def test_the_flood_of_a_tenant_delays_only_itself(replica: Replica, form: str) -> None:
    """A review of another namespace is answered after one of the flood, and not after all that came before it."""
    waiting = [f"crowd-{number}" for number in range(12)] + ["ml-0", "other-0", "ml-1"]
    with contextlib.ExitStack() as stack:
        clients = {uid: stack.enter_context(replica.tls()) for uid in [*waiting, "first"]}
        for uid, client in clients.items():  # each is answered once, so that no handshake is left to do
            client.sendall(FORMS[form](review(uid, namespace="any", name="t1")))
            assert answered(client) == uid
        clients["first"].sendall(FORMS[form](review("first", namespace="crowd")))
        assert replica.event("entered") == "entered first"
        for uid in waiting:
            clients[uid].sendall(FORMS[form](review(uid, namespace=uid.partition("-")[0])))
        # When somebody who comes later is answered in a handshake, the poller has seen all of them.
        stack.enter_context(replica.tls())
        replica.command("go")
        order = [replica.event("entered").partition(" ")[2] for _ in waiting]
        assert order[:6] == ["crowd-0", "ml-0", "other-0", "crowd-1", "ml-1", "crowd-2"]
        assert order[6:] == [f"crowd-{number}" for number in range(3, 12)]
        assert [answered(clients[uid]) for uid in waiting] == waiting
