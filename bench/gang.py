"""A placed gang in the service's own view of a simulated cluster, without any server, and reviews of its pods."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bench.jobs import job_body
from engine.api import names
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.decoding import objects, workloads
from engine.policy.model import parse_policy
from engine.scheduler.outcome import Placed
from engine.scheduler.schedule import new_placement, schedule_gang
from local import nodes
from local.nodes import Grid
from webhook.admission.live_reader import LiveReader
from webhook.admission.review import decode_review
from webhook.handlers.mutate import mutate

POLICY = """
topologies:
- {name: default, preset: demo}
nodes: {settle: 0s}
timeouts: {hold: 24h}
"""
NAMESPACE, JOB, UID = "ml", "train", "3c7f8a52-0000-4000-8000-000000000001"
CONTROLLER = "system:serviceaccount:kube-system:job-controller"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlacedGang:
    """The view, and the Job as it stands once it is resumed."""

    live: LiveReader
    view: ClusterState
    job: Json
    pods: int

    @classmethod
    def make(cls, grid: Grid, *, pods: int, annotations: Mapping[str, str]) -> PlacedGang:
        """Submit a Job, plan it and resume it, as the service would."""
        view = ClusterState(Stores(), parse_policy(POLICY))
        view.stores.nodes.replace([objects.node(json.dumps(body).encode()) for body in nodes.grid_nodes(grid)])
        live = live_view(view)
        view.refresh()
        sent = job_body(JOB, pods=pods, annotations=annotations)
        sent["metadata"]["namespace"] = NAMESPACE
        review = decode_review(review_body(sent, group="batch", user="alice"))
        held = dict(mutate(review, live, math.inf).document or sent)
        held["metadata"] = held["metadata"] | {"uid": UID, "resourceVersion": "100", "generation": 1}
        view.stores.workloads.replace([workloads.job(json.dumps(held).encode())])
        view.refresh()
        gang = view.gangs.get(UID)
        assert gang is not None
        plan = schedule_gang(view, gang)
        assert isinstance(plan, Placed), plan
        placement = replace(
            new_placement(gang, plan, priority=0, now=0.0), uid="p", resource_version="101", generation=1
        )
        view.stores.placements.replace([placement])
        resumed = held
        resumed["spec"]["suspend"] = False
        del resumed["metadata"]["annotations"][names.HELD_BY]
        resumed["metadata"] |= {"resourceVersion": "102", "generation": 2}
        resumed["spec"]["template"]["metadata"].setdefault("annotations", {}).update(
            {names.PLACEMENT: placement.name, names.REVISION: "1"}
        )
        view.stores.workloads.replace([workloads.job(json.dumps(resumed).encode())])
        view.refresh()
        return cls(live, view, resumed, pods)

    def pod(self, rank: int) -> Json:
        """A pod of the gang as it comes to admission."""
        return pod_of(self.job, rank)

    def stored(self, rank: int) -> bytes:
        """That pod as the watch shows it after admission."""
        pod = self.pod(rank)
        answer = mutate(decode_review(review_body(pod, group="", user=CONTROLLER)), self.live, math.inf)
        stored = dict(answer.document or pod)
        known = {"name": f"{JOB}-{rank}-abcde", "uid": f"pod-{rank}", "resourceVersion": f"{1000 + rank}"}
        stored["metadata"] = stored["metadata"] | known
        return json.dumps(stored).encode()


def pod_of(job: Json, rank: int) -> Json:
    """A pod of an Indexed Job as it comes to admission: from its controller, after the API server's own defaults."""
    meta, template = job["metadata"], job["spec"]["template"]
    name, uid = meta["name"], meta["uid"]
    labels = {
        **template["metadata"].get("labels", {}),
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-completion-index": str(rank),
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
    (container,) = template["spec"]["containers"]
    limits = container["resources"]["limits"]
    token = "kube-api-access-x7k2p"
    ready = {"effect": "NoExecute", "operator": "Exists", "tolerationSeconds": 300}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name}-{rank}-",
            "namespace": meta["namespace"],
            "creationTimestamp": None,
            "labels": labels,
            "annotations": {
                **template["metadata"]["annotations"],
                "batch.kubernetes.io/job-completion-index": str(rank),
            },
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            "finalizers": ["batch.kubernetes.io/job-tracking"],
        },
        "spec": {
            **template["spec"],
            "volumes": [
                {
                    "name": token,
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {
                                "configMap": {
                                    "name": "kube-root-ca.crt",
                                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                                }
                            },
                            {
                                "downwardAPI": {
                                    "items": [
                                        {
                                            "path": "namespace",
                                            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                                        }
                                    ]
                                }
                            },
                        ],
                        "defaultMode": 420,
                    },
                }
            ],
            "containers": [
                {
                    **container,
                    "resources": {"limits": limits, "requests": {**limits, **container["resources"]["requests"]}},
                    "env": [
                        {
                            "name": "JOB_COMPLETION_INDEX",
                            "valueFrom": {
                                "fieldRef": {
                                    "apiVersion": "v1",
                                    "fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']",
                                }
                            },
                        }
                    ],
                    "volumeMounts": [
                        {
                            "name": token,
                            "readOnly": True,
                            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                        }
                    ],
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "hostname": f"{name}-{rank}",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [
                {**ready, "key": "node.kubernetes.io/not-ready"},
                {**ready, "key": "node.kubernetes.io/unreachable"},
            ],
        },
        "status": {},
    }


def live_view(view: ClusterState) -> LiveReader:
    """What a replica's reviews see of the view, under the service's own name."""
    return LiveReader(
        view,
        own_username=f"system:serviceaccount:{names.NAMESPACE}:{names.SERVICE_ACCOUNT}",
        own_namespace=names.NAMESPACE,
        policy_loaded=lambda: True,
        wall=lambda: math.inf,
    )


def review_body(body: Json, *, group: str, user: str) -> bytes:
    """The AdmissionReview of a CREATE, as the API server sends it."""
    kind = {"group": group, "version": "v1", "kind": body["kind"]}
    resource = {"group": group, "version": "v1", "resource": f"{body['kind'].lower()}s"}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "namespace": body["metadata"].get("namespace", NAMESPACE),
        "operation": "CREATE",
        "userInfo": {
            "username": user,
            "uid": "5f0a4b9e-0000-4000-8000-000000000002",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
        },
        "object": body,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return json.dumps(review, separators=(",", ":")).encode()
