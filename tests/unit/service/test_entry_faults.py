"""What the admin learns of an entry of the policy's kinds that leads nowhere in his users' objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.api import names
from engine.policy.model import Policy, parse_policy
from tests.support.admission import FakeView, review
from webhook.admission.review import Response
from webhook.handlers.validate import validate
from webhook.server.metrics import Metrics
from webhook.service.entry_faults import LOG_SECONDS, EntryFaults

Json = dict[str, Any]

BENCH: Json = {
    "apiVersion": "example.com/v1",
    "kind": "Bench",
    "metadata": {"name": "a", "namespace": "ml", "annotations": {names.REQUIRE: "rack"}},
    "spec": {"template": {"spec": {"containers": [{"name": "m"}]}}},
}


def policy_of(template: str, *, name: str = "bench", **more: Any) -> Policy:
    kind = {
        "name": name,
        "match": {"group": "example.com", "versions": ["v1"], "kind": "Bench", "resource": "benches"},
        "podSets": [{"name": {"text": "main"}, "template": template, "count": {"const": 2}}],
        "gang": {"unit": "workload", "creation": "all-at-once"},
        "replace": {"cost": "free"},
    }
    return parse_policy(json.dumps({"kinds": [kind], **more}))


class Admin:
    """One replica's count and log under a policy, at a time that the test sets."""

    def __init__(self, policy: Policy) -> None:
        self.now = 100.0
        self.metrics = Metrics()
        self.faults = EntryFaults(self.metrics, clock=lambda: self.now)
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        self.view = FakeView(policy=policy)
        self.faults.follow(policy.registry)

    def submitted(self, raw: Json = BENCH) -> Response:
        asked = review(raw)
        return self.faults.noted(asked, validate(asked, self.view, 0.0))

    def count(self, entry: str = "kinds[0] (bench)") -> float | None:
        return self.metrics.registry.get_sample_value("topogate_kind_entry_faults_total", {"entry": entry})


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_the_admin_learns_what_users_are_refused_for(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    """A count by entry, which is 0 before, and a line with the entry, an object and the path; observing too."""
    admin = Admin(policy_of(".spec.tempalte", mode=mode))
    assert admin.count() == 0
    assert admin.submitted().allowed == (mode == "observe")
    assert admin.count() == 1
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "kinds[0] (bench) of the policy may be wrong: Bench ml/train-7 has nothing at spec.tempalte"
    ]


def test_the_log_tells_it_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """Users and controllers try again and again: all of them are counted, one in five minutes is logged."""
    admin = Admin(policy_of(".spec.tempalte"))
    for now in (100.0, 101.0, 99.0 + LOG_SECONDS, 100.0 + LOG_SECONDS):
        admin.now = now
        admin.submitted()
    assert (admin.count(), len(caplog.records)) == (4, 2)


def test_only_entries_in_force_are_counted() -> None:
    """The metric has the entries of the policy, whatever policies came and went; what stays keeps its count."""
    admin = Admin(policy_of(".spec.tempalte"))
    late = validate(review(BENCH), admin.view, 0.0)
    admin.submitted()
    admin.follow(policy_of(".spec.template"))
    assert admin.count() == 1
    admin.follow(policy_of(".spec.template", name="other"))
    admin.faults.noted(review(BENCH), late)
    assert (admin.count(), admin.count("kinds[0] (other)")) == (None, 0)


def test_what_a_user_did_wrong_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """A template that is no template, and a wrong request, are no fault of the entry; nor is an object that fits."""
    admin = Admin(policy_of(".spec.template"))
    asks = {**BENCH["metadata"], "annotations": {names.REQUIRE: "rak"}}
    refused = [admin.submitted(raw) for raw in ({**BENCH, "spec": {"template": 3}}, {**BENCH, "metadata": asks})]
    assert not any(answer.allowed for answer in refused)
    assert admin.submitted().allowed
    assert (admin.count(), caplog.records) == (0, [])
