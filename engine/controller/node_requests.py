"""Writes the ProvisioningRequests of gangs, with their PodTemplates, in an order that survives a crash.

Templates before the request: an autoscaler that finds a request without its templates lets it fail. On the way out
the templates go first as well: the request is what the next leader finds. Names are those of the demand and the
attempt, so what exists already is what is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from engine import metrics
from engine.api.objects import PROVISIONING_PLURAL, ProvisioningRequest, RuntimeClass
from engine.api.pod import Toleration
from engine.api.text import plural, sanitize
from engine.autoscaling.attempts import AskForNodes
from engine.autoscaling.demand import NodeDemand, held_pods_of
from engine.autoscaling.objects import pod_template, pod_template_object, request_object, template_name
from engine.cache.state import ClusterState
from engine.cluster import writes
from engine.cluster.client import ApiError, KubeClient, object_path
from engine.cluster.writes import Conflict, Done, Gone, Refused
from engine.controller.gang_events import GangEvents
from engine.controller.writer import StaleObject
from engine.decoding import placements, wire
from engine.decoding.provisioning import provisioning_request
from engine.gang import plain_pods
from engine.gang.gang import Gang
from engine.gang.plain_pods import is_plain
from engine.resources.shape import resource_tolerations


class NodeRequests:
    """Performs the writes of requests for nodes; thread-safe."""

    def __init__(self, view: ClusterState, api: KubeClient, events: GangEvents, *, fence: Callable[[], None]) -> None:
        self._view = view
        self._api = api
        self._events = events
        self._fence = fence

    def ask(
        self, gang: Gang, demand: NodeDemand, step: AskForNodes, *, version: str, elsewhere: Sequence[str] = ()
    ) -> str:
        """Create a request with its PodTemplates; return why the API server refuses it, else "".

        `elsewhere`: the host names of nodes that are of no use for pods that need one domain. Raises ApiFault when the
        API server does not answer, StaleObject when the gang has changed meanwhile.
        """
        placement = gang.placement
        assert placement is not None
        owned_by = plain_pods.owners(gang.pods) if is_plain(gang.key) else ()
        owners = placements.placement_body(placement, owners=owned_by)["metadata"].get("ownerReferences", [])
        where = {"gang": placement.name, "namespace": placement.namespace, "owners": owners}
        for index, template in self._templates(gang, demand, elsewhere).items():
            body = pod_template_object(step.name, index, template, **where)
            result = writes.create_pod_template(self._api, placement.namespace, body, fence=self._fence)
            if isinstance(result, Gone | Refused):
                return self._refused(gang, "PodTemplate", result)
        body = request_object(step.name, demand, step.tried, version=version, **where)
        result = writes.create_provisioning_request(self._api, placement.namespace, body, fence=self._fence)
        match result:
            case Done(body=written):
                self._view.stores.provisioning_requests.apply_own_write(provisioning_request(written))
            case Conflict():  # made by an earlier leader, which had no time for more
                path = object_path(
                    body["apiVersion"], PROVISIONING_PLURAL, namespace=placement.namespace, name=step.name
                )
                known = provisioning_request(self._api.request("GET", path))
                if known.deleting or known.gang != placement.name:
                    why = "is still being deleted" if known.deleting else "has not been made for this gang"
                    return self._problem(gang, "ProvisioningRequest", f"the one of its name {why}")
                self._view.stores.provisioning_requests.apply_own_write(known)
                return ""
            case Gone() | Refused():
                return self._refused(gang, "ProvisioningRequest", result)
        metrics.provisioning_requests.labels("created").inc()
        text = f"asked the autoscaler for {plural(demand.count, 'pod')} (class {sanitize(step.tried.class_name)})"
        self._events.publish(gang, "ProvisioningRequestCreated", "NodesRequested", text, pods=demand.count)
        return ""

    def withdraw(self, requests: Iterable[ProvisioningRequest], gang: Gang | None, why: str) -> None:
        """Delete requests with their PodTemplates; those of a gang that is gone have none."""
        for request in requests:
            for name, _ in request.pod_sets:
                if name.startswith(template_name(request.name, 0)[:-1]):  # one of ours, whatever the request says
                    writes.delete_pod_template(self._api, request.namespace, name, fence=self._fence)
            result = writes.delete_provisioning_request(self._api, request, fence=self._fence)
            if isinstance(result, Refused):
                raise writes.WriteRefused(result.message)
            # If a finalizer keeps it, the watch shows it again, as one that is being deleted.
            self._view.stores.provisioning_requests.apply("DELETED", request)
            metrics.provisioning_requests.labels("deleted").inc()
            if gang is not None:
                text = f"its request for nodes (class {sanitize(request.class_name)}) is withdrawn: {why}"
                self._events.record(gang, "NodesNotNeeded", text, pods=request.pods)

    def _refused(self, gang: Gang, kind: str, result: Gone | Refused) -> str:
        why = result.message if isinstance(result, Refused) else "the cluster no longer serves it"
        return self._problem(gang, kind, why)

    def _problem(self, gang: Gang, kind: str, why: str) -> str:
        metrics.provisioning_requests.labels("refused").inc()
        text = f"the {kind} for its nodes was refused: {sanitize(why, 200)}"
        self._events.publish(gang, "ProvisioningRequestRefused", "NodesNotProvisioned", text)
        return text

    def _templates(self, gang: Gang, demand: NodeDemand, elsewhere: Sequence[str]) -> dict[int, Mapping[str, Any]]:
        """Return the template of each pod set, by its index: of a held pod, as admission has made it, else its own."""
        held, workload = held_pods_of(gang, demand.pods), gang.workload
        found: dict[int, Mapping[str, Any]] = {}
        whole: Any = None
        for one in demand.pods:
            runtime_class: RuntimeClass | None = None
            tolerations: tuple[Toleration, ...] = ()
            if (pod := held.get(one.index)) is not None:
                raw = self._read(object_path("v1", "pods", namespace=workload.namespace, name=pod))
            else:
                template = one.pod_set.template
                runtime_class = self._view.stores.runtime_classes.get(template.runtime_class)
                if self._view.policy.nodes.extended_resource_toleration:
                    tolerations = resource_tolerations(template.shape.requests)
                if whole is None:
                    whole = self._read(
                        object_path(
                            workload.api_version, workload.resource, namespace=workload.namespace, name=workload.name
                        )
                    )
                raw = _at(whole, one.pod_set.path)
            excluded = elsewhere if one.together else ()
            found[one.index] = pod_template(
                raw, demand.node_selector, excluded, runtime_class=runtime_class, tolerations=tolerations
            )
        return found

    def _read(self, path: str) -> Any:
        try:
            return wire.decode(dict, self._api.request("GET", path))
        except ApiError as error:
            if error.status == 404:  # noqa: PLR2004 - gone meanwhile: reconciled again
                raise StaleObject(f"{path} is gone") from None
            raise


def _at(raw: Any, steps: Iterable[str | int]) -> Mapping[str, Any]:
    for step in steps:
        try:
            raw = raw[step]
        except (KeyError, IndexError, TypeError):
            raise StaleObject("the workload no longer has the template that it had") from None
    return raw if isinstance(raw, Mapping) else {}
