"""The alerts of manifests/monitoring, and when they fire on given series."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import promql_parser as promql
import yaml

from tests.support.pages import ROOT
from tests.support.promql import STEP, Labels, Series, evaluate

RULES = ROOT / "manifests" / "monitoring" / "prometheusrule.yaml"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert; `lasts` is its `for` in seconds."""

    name: str
    expression: str
    lasts: float
    severity: str
    annotations: Mapping[str, str]

    def firing(self, series: Iterable[Series], at: float) -> set[Labels]:
        """Return the labels with which it fires at a time: the expression held since `for` ago, without a gap."""
        known = tuple(series)
        step = max(STEP, self.lasts / 100)
        times = [at - step * number for number in range(int(self.lasts / step) + 1)]
        return set.intersection(*(set(evaluate(self.expression, known, when)) for when in times))


@cache
def alerts() -> dict[str, Alert]:
    """Every alert by its name."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["spec"]["groups"]
    found = [
        Alert(
            rule["alert"],
            rule["expr"],
            promql.parse_duration(rule["for"]).total_seconds() if "for" in rule else 0.0,
            rule["labels"]["severity"],
            rule["annotations"],
        )
        for group in groups
        for rule in group["rules"]
    ]
    assert len({one.name for one in found}) == len(found)
    return {one.name: one for one in found}
