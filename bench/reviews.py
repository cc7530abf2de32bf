"""What the replicas say of their reviews, from their plain port's /metrics."""

from __future__ import annotations

from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from local.service import Service


class Told(NamedTuple):
    """Reviews that all running replicas have answered ("mutate Pod" -> how many), their seconds, and handshakes."""

    answered: dict[str, float]
    seconds: float
    handshakes: float


def told(service: Service) -> Told:
    """What all running replicas say so far, together."""
    answered: dict[str, float] = {}
    seconds = handshakes = 0.0
    for replica in service.running():
        for family in text_string_to_metric_families(replica.page("/metrics")[1]):
            for sample in family.samples:
                if sample.name == "topogate_reviews_total":
                    what = f"{sample.labels['path']} {sample.labels['kind']}"
                    answered[what] = answered.get(what, 0.0) + sample.value
                elif sample.name == "topogate_review_duration_seconds_sum":
                    seconds += sample.value
                elif sample.name == "topogate_handshakes_total":
                    handshakes += sample.value
    return Told(answered, seconds, handshakes)
