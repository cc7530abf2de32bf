"""Whatever comes in, at the HTTPS port or through the API server: a clear answer, no trace, and the service goes on."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import urllib3

from engine.api import names
from local.client import Client, ClientError
from local.service import CONFIGURATIONS, Service
from tests.support.gangs import Namespace, job_body, require

MIB = 1024 * 1024
TRACES = ("Traceback", 'File "', "Error:", "msgspec", "/engine/", "/webhook/")
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def port(service: Service, client: Client) -> Iterator[urllib3.HTTPSConnectionPool]:
    """The HTTPS port of a running replica, trusted by the CA that the API server trusts."""
    bundle = base64.b64decode(client.get(CONFIGURATIONS[0])["webhooks"][0]["clientConfig"]["caBundle"])
    with urllib3.HTTPSConnectionPool(
        "127.0.0.1", service.port, ca_cert_data=bundle.decode(), retries=False, timeout=10.0
    ) as pool:
        yield pool


def review(kind: str = "Job", obj: object = None, **more: Any) -> dict[str, Any]:
    group = "batch" if kind == "Job" else ""
    request = {
        "uid": "c0ffee00-0000-0000-0000-000000000000",
        "operation": "CREATE",
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": f"{kind.lower()}s"},
        "namespace": "default",
        "userInfo": {"username": "somebody"},
        "object": obj,
        **more,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def asking_job(**spec: Any) -> dict[str, Any]:
    body = job_body("train", pods=2, annotations=require("rack"))
    body["spec"].update(spec)
    return body


def deep(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def encoded(body: object) -> bytes:
    return json.dumps(body).encode()


# What the bytes are -> the statuses that are right for them.
MALFORMED: dict[str, tuple[Callable[[], bytes], int]] = {
    "nothing": (lambda: b"", 400),
    "no JSON": (lambda: b"apiVersion: v1", 400),
    "half of it": (lambda: encoded(review(obj=asking_job()))[:-40], 400),
    "two of them": (lambda: encoded(review(obj=asking_job())) * 2, 400),
    "no UTF-8": (lambda: encoded(review(obj=asking_job())).replace(b"train", b"\xff\xfe\xfd"), 400),
    "a byte order mark": (lambda: b"\xef\xbb\xbf" + encoded(review(obj=asking_job())), 400),
    "a list": (lambda: b"[]", 400),
    "a number": (lambda: b"1" * 4000, 400),
    "null": (lambda: b"null", 400),
    "an empty object": (lambda: b"{}", 400),
    "another kind": (lambda: encoded({"apiVersion": "v1", "kind": "Pod"}), 400),
    "an old version": (lambda: encoded({**review(obj=asking_job()), "apiVersion": "admission.k8s.io/v1beta1"}), 400),
    "no request": (lambda: encoded({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}), 400),
    "no uid": (lambda: encoded(review(obj=asking_job(), uid="")), 400),
    "a uid as a number": (lambda: encoded(review(obj=asking_job(), uid=7)), 400),
    "a long uid": (lambda: encoded(review(obj=asking_job(), uid="u" * 100_000)), 400),
    "an unknown operation": (lambda: encoded(review(obj=asking_job(), operation="PATCH")), 400),
    "no object": (lambda: encoded(review()), 400),
    "an object that is a list": (lambda: encoded(review(obj=[asking_job()])), 400),
    "an object that is text": (lambda: encoded(review(obj="job")), 400),
    "a spec that is text": (lambda: encoded(review(obj={**asking_job(), "spec": "all"})), 400),
    "metadata that is a list": (lambda: encoded(review(obj={**asking_job(), "metadata": []})), 400),
    "a count that is text": (lambda: encoded(review(obj=asking_job(parallelism="2"))), 400),
    "a count with a fraction": (lambda: encoded(review(obj=asking_job(parallelism=2.5))), 400),
    "a template that is null": (lambda: encoded(review(obj=asking_job(template=None))), 200),
    "annotations as a list": (
        lambda: encoded(review(obj={**asking_job(), "metadata": {"name": "train", "annotations": [1, 2]}})),
        400,
    ),
    "a number without an end": (
        lambda: encoded(review(obj=asking_job())).replace(b'"parallelism": 2', b'"parallelism": ' + b"9" * 100_000),
        200,  # denied, or left to the API server's own validation: an object's value, not the review's form
    ),
    "an object that is too deep": (lambda: deep(100_000), 400),
    "a deep thing in the object": (
        lambda: encoded(review(obj=asking_job())).replace(b'"parallelism": 2', b'"parallelism": ' + deep(50_000)),
        400,
    ),
    "eight megabytes": (lambda: b" " * (8 * MIB), 413),
}


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_malformed_reviews_are_refused_and_the_service_goes_on(
    port: urllib3.HTTPSConnectionPool, service: Service, path: str
) -> None:
    """Each is answered with its status, in one plain line; afterwards a good review is answered as ever."""
    for what, (make, status) in MALFORMED.items():
        answer = post(port, make(), path)
        assert answer.status == status, (what, answer.status, answer.data[:500])
        text = answer.data.decode()
        assert len(text) < 2_000, what
        assert not any(trace in text for trace in TRACES), (what, text)
    good = post(port, encoded(review(obj=asking_job())), path)
    assert good.status == 200
    assert json.loads(good.data)["response"]["uid"] == review()["request"]["uid"]
    assert [replica.ready() for replica in service.running()] == [True, True]


def post(port: urllib3.HTTPSConnectionPool, body: bytes, path: str = "/validate") -> urllib3.BaseHTTPResponse:
    """Send a body; the server may answer, and close, before it has taken in all of an oversized one."""
    return port.request("POST", f"{path}?timeout=5s", body=body, headers=JSON)


HTTP: dict[str, tuple[str, str, dict[str, str], bytes, int]] = {
    "another method": ("GET", "/mutate", JSON, b"", 405),
    "another path": ("POST", "/admin", JSON, b"{}", 404),
    "out of the tree": ("POST", "/../etc/passwd", JSON, b"{}", 404),
    "another type": ("POST", "/mutate", {"Content-Type": "text/plain"}, b"{}", 415),
    "no type": ("POST", "/mutate", {}, b"{}", 415),
    "a chunked body": ("POST", "/mutate", {**JSON, "Transfer-Encoding": "chunked"}, b"0\r\n\r\n", 411),
}


@pytest.mark.parametrize("what", HTTP)
def test_other_http_is_refused(port: urllib3.HTTPSConnectionPool, what: str) -> None:
    """Method, path, type and framing are what the API server sends, or the answer is 4xx."""
    method, path, headers, body, status = HTTP[what]
    answer = port.request(method, path, body=body or None, headers=headers)
    assert answer.status == status
    assert not any(trace in answer.data.decode() for trace in TRACES)


def test_a_timeout_of_nonsense_is_no_fault(port: urllib3.HTTPSConnectionPool) -> None:
    """What the API server says about its patience is read with care."""
    for text in ("", "-5s", "1e999s", "x" * 500, "5s;drop", "99999999999h", "%00"):
        answer = port.request("POST", f"/validate?timeout={text}", body=encoded(review(obj=asking_job())), headers=JSON)
        assert answer.status == 200, text


# Through the API server: what to change in a good Job, and a field that the answer must name (None: it is stored).
ABSURD: dict[str, tuple[Callable[[dict[str, Any]], None], str | None]] = {}


def absurd(what: str, field: str | None) -> Callable[[Callable[[dict[str, Any]], None]], None]:
    def note(change: Callable[[dict[str, Any]], None]) -> None:
        ABSURD[what] = change, field

    return note


@absurd("a negative parallelism", "spec.parallelism")
def _(job: dict[str, Any]) -> None:
    job["spec"]["parallelism"] = -1


@absurd("negative completions", "spec.completions")
def _(job: dict[str, Any]) -> None:
    job["spec"]["completions"] = -(2**31)


@absurd("a billion pods", "spec.parallelism")
def _(job: dict[str, Any]) -> None:
    job["spec"].update(parallelism=10**9, completions=None, completionMode="NonIndexed")


@absurd("a billion completions", None)
def _(job: dict[str, Any]) -> None:
    job["spec"].update(completions=10**9, completionMode="NonIndexed")


@absurd("no pods", None)
def _(job: dict[str, Any]) -> None:
    job["spec"].update(parallelism=0, completions=0)


@absurd("a level of control characters", "metadata.annotations[topogate.dev/require-topology]")
def _(job: dict[str, Any]) -> None:
    job["metadata"]["annotations"] = require("ra\x00ck\x1b[31m\n\r\u202e")


@absurd("a level of quotes", "metadata.annotations[topogate.dev/require-topology]")
def _(job: dict[str, Any]) -> None:
    job["metadata"]["annotations"] = require("\"'`;${}<script>\\")


@absurd("an empty level", "metadata.annotations[topogate.dev/require-topology]")
def _(job: dict[str, Any]) -> None:
    job["metadata"]["annotations"] = require("")


@absurd("a level of 250 kB", "metadata.annotations[topogate.dev/require-topology]")
def _(job: dict[str, Any]) -> None:
    job["metadata"]["annotations"] = require("x" * 250_000)


@absurd("annotations of a megabyte", "metadata.annotations")
def _(job: dict[str, Any]) -> None:
    job["metadata"]["annotations"]["example.com/blob"] = "x" * MIB


@absurd("annotations of 250 kB", None)
def _(job: dict[str, Any]) -> None:
    job["metadata"]["annotations"]["example.com/blob"] = '"\\\u2028' * 40_000


@absurd("a thousand unknown annotations of ours", "metadata.annotations[topogate.dev/x-0]")
def _(job: dict[str, Any]) -> None:
    job["metadata"]["annotations"] |= {f"topogate.dev/x-{number}": "1" for number in range(1000)}


@absurd("a size that is no number", "metadata.annotations[topogate.dev/min-available]")
def _(job: dict[str, Any]) -> None:
    job["metadata"]["annotations"]["topogate.dev/min-available"] = "9" * 5000


@absurd("more GPUs than there are numbers", "spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]")
def _(job: dict[str, Any]) -> None:
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(2**62)}}


@absurd("a template without containers", "spec.template.spec.containers")
def _(job: dict[str, Any]) -> None:
    job["spec"]["template"]["spec"]["containers"] = []


@absurd("a node selector of 200 keys", None)
def _(job: dict[str, Any]) -> None:
    job["spec"]["template"]["spec"]["nodeSelector"] = {f"example.com/k{number}": "v" for number in range(200)}


@pytest.mark.parametrize("what", ABSURD)
def test_absurd_values_get_a_clear_answer(gangs: Namespace, client: Client, what: str) -> None:
    """422 that names the field, or stored and held; the leader lives, and the next gang is placed."""
    change, field = ABSURD[what]
    body = asking_job()
    body["spec"]["template"]["spec"]["nodeSelector"] = dict(gangs.fleet.selector)
    change(body)
    if field is None:
        stored = client.create(gangs.jobs_path, body)
        assert stored["spec"]["suspend"] is True
    else:
        with pytest.raises(ClientError) as error:
            client.create(gangs.jobs_path, body)
        # What the policy limits is its admin's decision: 403.
        assert error.value.status == (403 if "policy" in error.value.message else 422), error.value
        assert field in error.value.message
        assert not any(trace in error.value.message for trace in TRACES), error.value
        assert not any(ord(one) < 32 for one in error.value.message), error.value
        assert len(error.value.message) < 8_000
    gangs.fleet.grid("1x1x1")
    gangs.submit("sane", pods=1, annotations=require("rack"))
    gangs.all_bound("sane", 1)


@pytest.mark.parametrize(("length", "indexed"), [(61, True), (63, False)])
def test_names_at_the_limit_are_placed(gangs: Namespace, length: int, indexed: bool) -> None:
    """A Job's name as long as Kubernetes takes it: its Placement has a name of its own, and the pods are bound."""
    gangs.fleet.grid("1x1x2")
    name = ("a-" * 40)[: length - 1] + "z"
    gangs.submit(name, pods=2, annotations=require("rack"), indexed=indexed)
    gangs.all_bound(name, 2)


def test_a_quantity_with_an_absurd_exponent_costs_no_time(port: urllib3.HTTPSConnectionPool) -> None:
    """A thousand million zeros are never written out."""
    job = asking_job()
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1e999999999"}}
    for path in ("/mutate", "/validate"):
        assert post(port, encoded(review(obj=job)), path).status == 200


def test_a_generated_name_is_placed(gangs: Namespace, client: Client) -> None:
    """A Job that has no name yet when it is admitted."""
    gangs.fleet.grid("1x1x2")
    body = job_body("x", pods=2, annotations=require("rack"), selector=gangs.fleet.selector)
    body["metadata"] = {"generateName": "made-", "annotations": require("rack")}
    name = client.create(gangs.jobs_path, body)["metadata"]["name"]
    gangs.all_bound(name, 2)


def test_a_pod_with_absurd_marks_is_admitted_and_held(gangs: Namespace, client: Client) -> None:
    """Our own annotations with nonsense in them, on a pod of a gang that waits: held like its siblings."""
    gangs.fleet.grid("1x1x1")
    job = gangs.submit("train", pods=2, annotations=require("rack"))
    gangs.waits("train")
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job["metadata"]["uid"]}
    annotations = {names.REVISION: "9" * 10_000, names.DOMAIN_PATH: "/" * 5_000, names.RANK: "-1\x00"}
    body = {
        "metadata": {
            "generateName": "train-",
            "labels": {names.MANAGED: "true", names.COMPLETION_INDEX: "x" * 63},
            "annotations": annotations,
            "ownerReferences": [{**reference, "controller": True}],
        },
        "spec": job["spec"]["template"]["spec"],
    }
    stored = client.create(f"/api/v1/namespaces/{gangs.name}/pods", body)
    assert stored["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert names.RANK not in stored["metadata"]["annotations"]
