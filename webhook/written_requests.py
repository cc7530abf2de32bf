"""Requests that are written into a workload when it is created: those of its namespace, and what pod-group labels ask.

Namespaces ask by the policy's `namespaces.defaults`. Pod-group labels of the user's own (dialect `pod-group`) ask for a
gang of no level; our own labels will stand beside them, and nobody could tell then who asked. Written, not imputed:
whoever reads the workload sees what is asked for it, and a later change of the policy moves nothing that exists. The
rules: docs/tasks/admin/policy.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

import msgspec

from engine import names
from engine.annotations import Source, own_source, read, unknown_keys
from engine.aside import standing_aside
from engine.policy import Policy
from engine.policy_errors import path_of
from engine.records import Workload
from webhook.objects import decoded, workload_of
from webhook.parents import standing
from webhook.patch import Edits
from webhook.pod_group import requests_of_labels
from webhook.review import Response, Review
from webhook.view import View


def with_requests(review: Review, view: View, policy: Policy) -> tuple[Review, tuple[Mapping[str, object], ...]]:
    """Return the review of a new workload with such requests in it, and the patch that puts them there.

    The review as it is and no patch when there are none, when the workload asks itself, or when it is not
    ours to place. Raises Unreadable and BadReview as `workload_of` does.
    """
    if review.operation != "CREATE":
        return review, ()
    workload = workload_of(review, review.object, view)
    wanted = requests_of_labels(workload, policy) or requests_of(review.namespace, policy)
    if not wanted or not _quiet(workload, view, policy):
        return review, ()
    document = decoded(review.object)
    edits = Edits(document)
    for key, value in wanted.items():
        edits.put(("metadata", "annotations", key), value)
    return replace(review, object=msgspec.Raw(msgspec.json.encode(edits.document))), tuple(edits.operations)


def joined(patch: tuple[Mapping[str, object], ...], response: Response) -> Response:
    """Return the answer to the review with defaults as one to the review that came."""
    return replace(response, patch=(*patch, *response.patch)) if patch else response


def requests_of(namespace: str, policy: Policy) -> Mapping[str, str]:
    """Return the annotations that workloads of a namespace get: of the first default that matches it."""
    for default in policy.namespaces.defaults:
        if any(fnmatchcase(namespace, pattern) for pattern in default.namespaces):
            return default.annotations
    return {}


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
