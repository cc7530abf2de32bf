"""`/mutate`: from a review to the changes of its object; a pure function of the review and the reader."""

from __future__ import annotations

from engine.policy.namespaces import mode_of
from webhook.admission.budget import BudgetExceeded
from webhook.admission.objects import POD, Unreadable, entry_of
from webhook.admission.reader import Reader
from webhook.admission.review import Response, Review, Unavailable, allowed
from webhook.handlers.mutate_pod import mutate_pod
from webhook.handlers.mutate_workload import mutate_workload
from webhook.handlers.unreadable import too_costly


def mutate(review: Review, view: Reader, deadline: float) -> Response:
    """Answer a mutating review.

    Objects that are not ours to change pass. Raises BadReview for malformed objects and Unavailable while no policy is
    loaded.
    """
    what = (review.group, review.kind)
    if review.subresource or review.username == view.own_username:
        return allowed()
    if what != POD and entry_of(review, view) is None:
        return allowed()
    if review.operation not in (("CREATE",) if what == POD else ("CREATE", "UPDATE")):
        return allowed()
    policy = view.policy
    if policy is None:
        raise Unavailable("no policy is loaded yet")
    if not mode_of(review.namespace, policy).manages:
        return allowed()
    try:
        if what == POD:
            return mutate_pod(review, view, policy, deadline)
        return mutate_workload(review, view, policy)
    except Unreadable:
        return allowed()  # the API server's own validation comes next, and `/validate` after it
    except BudgetExceeded as fault:
        return too_costly(review, fault, view, policy)
