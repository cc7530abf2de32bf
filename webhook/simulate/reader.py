"""The reads of the admission handlers, answered from a cluster state in files."""

from __future__ import annotations

import math

from engine.api import names
from engine.api.workload import Workload
from engine.cache.state import ClusterState
from engine.gang.request import PlacementRequest
from engine.preemption.preempt import Preemption
from engine.scheduler.outcome import Outcome
from webhook.admission.live_reader import LiveReader


class OfflineReader(LiveReader):
    """The reader for the admission handlers: the service's own state without a clock.

    `first_outcome`: of the first forecast.
    """

    def __init__(self, view: ClusterState) -> None:
        super().__init__(
            view,
            own_username=f"system:serviceaccount:{names.NAMESPACE}:{names.SERVICE_ACCOUNT}",
            own_namespace=names.NAMESPACE,
            policy_loaded=lambda: True,
            clock=lambda: 0.0,
            wall=lambda: math.inf,  # every node counts as settled
        )
        self.first_outcome: Outcome | None = None

    def forecast(self, workload: Workload, request: PlacementRequest, deadline: float) -> Outcome | None:
        """Return the service's forecast, and keep the first one of a review: it is for the unchanged request."""
        outcome = super().forecast(workload, request, deadline)
        self.first_outcome = self.first_outcome or outcome
        return outcome

    def preemption(self, workload: Workload, request: PlacementRequest, deadline: float) -> Preemption | None:
        """Return None: the verdict says what is preempted."""
        return None
