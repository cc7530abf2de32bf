"""What the replicas say of their reviews, from their plain port's /metrics."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from local.service import Service


def told(service: Service) -> tuple[dict[str, float], float]:
    """Reviews answered by all running replicas ("mutate Pod" -> how many), and the seconds that they took together."""
    answered: dict[str, float] = {}
    seconds = 0.0
    for replica in service.running():
        for family in text_string_to_metric_families(replica.page("/metrics")[1]):
            for sample in family.samples:
                if sample.name == "topogate_reviews_total":
                    what = f"{sample.labels['path']} {sample.labels['kind']}"
                    answered[what] = answered.get(what, 0.0) + sample.value
                elif sample.name == "topogate_review_duration_seconds_sum":
                    seconds += sample.value
    return answered, seconds
