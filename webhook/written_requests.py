"""Requests that are written into a workload when it is created: those of its namespace, and what pod-group labels ask.

Namespaces ask by the policy's `namespaces.defaults`. Pod-group labels of the user's own (dialect `pod-group`) ask for a
gang of no level; our own labels will stand beside them, and nobody could tell then who asked. Written, not imputed:
whoever reads the workload sees what is asked for it, and a later change of the policy moves nothing that exists. The
rules: docs/tasks/admin/policy.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from engine.api import names
from engine.api.field import path_of, render
from engine.api.text import MAX_WARNING, fit
from engine.api.workload import Workload
from engine.gang.annotations import Source, own_source, read, unknown_keys
from engine.gang.exemption import standing_aside
from engine.gang.request import Understanding, understand
from engine.policy.model import Policy
from engine.policy_defaults import requests_of
from webhook.objects import decoded, workload_of
from webhook.parents import standing
from webhook.patch import Edits
from webhook.pod_group import requests_of_labels
from webhook.review import Response, Review
from webhook.view import View


@dataclass(frozen=True, slots=True)
class Asking:
    """The review of a new workload with the requests that are written into it, the patch that puts them there, and
    what to tell its user of those that are not.
    """

    review: Review
    patch: tuple[Mapping[str, object], ...] = ()
    warnings: tuple[str, ...] = ()

    def answer(self, response: Response) -> Response:
        """Return the answer to this review as one to the review that came."""
        patch, warnings = (*self.patch, *response.patch), (*self.warnings, *response.warnings)
        return replace(response, patch=patch, warnings=warnings)


def with_requests(review: Review, view: View, policy: Policy) -> Asking:
    """Return the review of a new workload with such requests in it.

    As it is when there are none, when the workload asks itself, or when it is not ours to place; a default of its
    namespace that cannot be met is left out. Raises Unreadable and BadReview as `workload_of` does.
    """
    if review.operation != "CREATE":
        return Asking(review)
    workload = workload_of(review, review.object, view)
    of_labels = requests_of_labels(workload, policy)
    wanted = of_labels or requests_of(review.namespace, policy)
    if not wanted or not _quiet(workload, view, policy):
        return Asking(review)
    document = decoded(review.object)
    edits = Edits(document)
    for key, value in wanted.items():
        edits.put(("metadata", "annotations", key), value)
    asking = replace(review, object=msgspec.Raw(msgspec.json.encode(edits.document)))
    if not of_labels and (errors := _understood(asking, view, policy).errors):
        told = f"{errors[0].field.removeprefix('metadata.')}: {render(errors[0])}"
        return Asking(review, warnings=(fit(f"topogate: the policy's default is left out: {told}", MAX_WARNING),))
    return Asking(asking, tuple(edits.operations))


def _understood(review: Review, view: View, policy: Policy) -> Understanding:
    workload = workload_of(review, review.object, view)
    return understand(workload, policy=policy, topologies=view.topologies, own_namespace=view.own_namespace)


def _quiet(workload: Workload, view: View, policy: Policy) -> bool:
    """True for a workload that is ours to place and says nothing itself, right or wrong."""
    if workload.handling not in ("placed", "through") or workload.deleting:
        return False
    sources = [own_source(workload)]
    sources += [
        Source(path_of((*one.path, "metadata")), one.template.annotations, one.template.labels)
        for one in workload.pod_sets
    ]
    marked = any(names.MANAGED in one.template.labels for one in workload.pod_sets)
    if marked or read(sources, dialects=policy.annotations.dialects) or any(unknown_keys(sources)):
        return False
    aside = standing_aside(workload, policy=policy, own_namespace=view.own_namespace)
    return aside is None and standing(workload, view, policy) == "alone"
