"""Each alert fires on the state that it is for, after its time and not before, and is silent on a healthy service."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from engine.api.reasons import REASONS
from tests.support.alerts import alerts
from tests.support.pages import pages
from tests.support.promql import STEP, Series, names

MONTH = 30 * 24 * 3600.0
METRICS = pages()["docs/reference/metrics.md"].text

# Two replicas, `a` leads; counters stand still or grow as they do without trouble. One value a minute.
HEALTHY = {
    'topogate_leader{pod="a"}': "1",
    'topogate_leader{pod="b"}': "0",
    'topogate_policy_refused{pod="a"}': "0",
    'topogate_policy_info{pod="a",hash="h1"}': "1",
    'topogate_policy_info{pod="b",hash="h1"}': "1",
    'topogate_certificate_overdue_timestamp_seconds{pod="a",certificate="ca"}': "200000000",
    'topogate_certificate_overdue_timestamp_seconds{pod="a",certificate="leaf"}': "5000000",
    'topogate_certificate_overdue_timestamp_seconds{pod="b",certificate="leaf"}': "5000000",
    'topogate_certificate_trusted{pod="a"}': "1",
    'topogate_certificate_trusted{pod="b"}': "1",
    'topogate_ca_info{pod="a",signer="s1"}': "1",
    'topogate_ca_info{pod="b",signer="s1"}': "1",
    'topogate_cas_trusted{pod="a"}': "1",
    'topogate_server_faults_total{pod="a",port="webhook"}': "0",
    'topogate_controller_faults_total{pod="a"}': "0",
    'topogate_cache_age_seconds{pod="a",collection="pods"}': "50",
    'topogate_unreadable_objects{pod="a",collection="pods"}': "0",
    'topogate_writes_total{pod="a",what="PATCH pods",result="Done"}': "0+100",
    'topogate_writes_total{pod="a",what="PATCH pods",result="Conflict"}': "0+10",
    'topogate_writes_total{pod="a",what="PATCH pods",result="Refused"}': "3",
    'topogate_writes_total{pod="a",what="PATCH pods",result="Fault"}': "7",
    'topogate_reviews_refused_total{pod="a",path="mutate",status="503"}': "4",
    'topogate_reviews_refused_total{pod="a",path="other",status="404"}': "0+1",
    'topogate_reviews_over_budget_total{pod="a",path="mutate"}': "2",
    'topogate_kind_entry_faults_total{pod="a",entry="kinds[0] (bench)"}': "2",
    'topogate_review_duration_seconds_bucket{pod="a",path="mutate",outcome="patched",le="0.01"}': "0+990",
    'topogate_review_duration_seconds_bucket{pod="a",path="mutate",outcome="patched",le="0.5"}': "0+999",
    'topogate_review_duration_seconds_bucket{pod="a",path="mutate",outcome="patched",le="2.0"}': "0+1000",
    'topogate_review_duration_seconds_bucket{pod="a",path="mutate",outcome="patched",le="+Inf"}': "0+1000",
    'topogate_connections_ended_total{pod="a",reason="idle"}': "0+600",
    'topogate_connections_ended_total{pod="a",reason="room"}': "9",
    'topogate_gang_oldest_wait_seconds{pod="a",reason="Fragmented"}': "1200",
    'topogate_gang_oldest_wait_seconds{pod="a",reason="QuotaExceeded"}': "900000",
    'topogate_gangs_without_pods{pod="a"}': "0",
    'topogate_rooms_kept{pod="a"}': "0",
    'topogate_gang_oldest_phase_seconds{pod="a",phase="Starting"}': "600",
    'topogate_topology_nodes{pod="a",topology="default",state="in"}': "64",
    'topogate_topology_nodes{pod="a",topology="default",state="unlabelled"}': "0",
    'topogate_topology_nodes{pod="a",topology="default",state="unselected"}': "6",
    'topogate_hosts_with_device_faults{pod="a"}': "0",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is different from the healthy service from `since` minutes on, and the labels with which the alert fires.

    None: the series is gone.
    """

    changes: dict[str, str | None]
    labels: dict[str, str]


BUCKETS = {key: "0" for key in HEALTHY if key.startswith("topogate_review_duration") and 'le="2.0"' not in key}
TROUBLE = {
    "TopogateDown": Trouble({key: None for key in HEALTHY if key.startswith("topogate_leader")}, {}),
    "TopogateNoLeader": Trouble({'topogate_leader{pod="a"}': "0"}, {}),
    "TopogateTwoLeaders": Trouble({'topogate_leader{pod="b"}': "1"}, {}),
    "TopogatePolicyRefused": Trouble({'topogate_policy_refused{pod="a"}': "1"}, {}),
    "TopogatePoliciesDiffer": Trouble({'topogate_policy_info{pod="c",hash="h2"}': "1"}, {}),
    "TopogateCAExpires": Trouble(
        {'topogate_certificate_overdue_timestamp_seconds{pod="a",certificate="ca"}': "3540"}, {}
    ),
    "TopogateCertificateExpires": Trouble(
        {'topogate_certificate_overdue_timestamp_seconds{pod="b",certificate="leaf"}': "3540"}, {"pod": "b"}
    ),
    "TopogateCertificateUntrusted": Trouble({'topogate_certificate_trusted{pod="b"}': "0"}, {"pod": "b"}),
    "TopogateSignersDiffer": Trouble({'topogate_ca_info{pod="b",signer="s2"}': "1"}, {}),
    "TopogateRenewalStuck": Trouble({'topogate_cas_trusted{pod="a"}': "2"}, {}),
    "TopogateServerFaults": Trouble({'topogate_server_faults_total{pod="a",port="webhook"}': "1"}, {"port": "webhook"}),
    "TopogateControllerFaults": Trouble({'topogate_controller_faults_total{pod="a"}': "1"}, {}),
    "TopogateWatchSilent": Trouble(
        {'topogate_cache_age_seconds{pod="a",collection="pods"}': "700"}, {"collection": "pods"}
    ),
    "TopogateRightMissing": Trouble(
        {'topogate_forbidden_collections{pod="a",collection="jobs.batch"}': "1"}, {"collection": "jobs.batch"}
    ),
    "TopogateObjectsUnreadable": Trouble(
        {'topogate_unreadable_objects{pod="a",collection="pods"}': "2"}, {"collection": "pods"}
    ),
    "TopogateWritesRefused": Trouble(
        {'topogate_writes_total{pod="a",what="PATCH pods",result="Refused"}': "3+1"}, {"what": "PATCH pods"}
    ),
    "TopogateWritesFail": Trouble({'topogate_writes_total{pod="a",what="PATCH pods",result="Fault"}': "7+1"}, {}),
    "TopogateWriteConflicts": Trouble(
        {'topogate_writes_total{pod="a",what="PATCH pods",result="Conflict"}': "0+100"}, {"what": "PATCH pods"}
    ),
    "TopogateReviewsFail": Trouble(
        {'topogate_reviews_refused_total{pod="a",path="mutate",status="503"}': "4+1"},
        {"path": "mutate", "status": "503"},
    ),
    "TopogateReviewsSlow": Trouble(
        {key: "0+900" for key in HEALTHY if 'le="0.01"' in key or 'le="0.5"' in key}, {"path": "mutate"}
    ),
    "TopogateReviewsTooCostly": Trouble(
        {'topogate_reviews_over_budget_total{pod="a",path="mutate"}': "3"}, {"path": "mutate"}
    ),
    "TopogateKindEntryWrong": Trouble(
        {'topogate_kind_entry_faults_total{pod="a",entry="kinds[0] (bench)"}': "3"}, {"entry": "kinds[0] (bench)"}
    ),
    "TopogateConnectionFlood": Trouble(
        {'topogate_connections_ended_total{pod="a",reason="room"}': "9+100"}, {"reason": "room"}
    ),
    "TopogateGangWaitsLong": Trouble(
        {'topogate_gang_oldest_wait_seconds{pod="a",reason="Fragmented"}': "22000"}, {"reason": "Fragmented"}
    ),
    "TopogateRoomKept": Trouble({'topogate_rooms_kept{pod="a"}': "1"}, {}),
    "TopogateGangStuck": Trouble(
        {'topogate_gang_oldest_phase_seconds{pod="a",phase="Starting"}': "4000"}, {"phase": "Starting"}
    ),
    "TopogateGangWithoutPods": Trouble({'topogate_gangs_without_pods{pod="a"}': "1 0 0 0 0 0 0 0 0 0 0 0+0"}, {}),
    "TopogateNodesLeftOut": Trouble(
        {'topogate_topology_nodes{pod="a",topology="default",state="unlabelled"}': "1"}, {"topology": "default"}
    ),
    "TopogateDevicesNotCounted": Trouble({'topogate_hosts_with_device_faults{pod="a"}': "1"}, {}),
}
BEGINS = 60  # minutes of health


def history(minutes: int, trouble: Trouble | None = None) -> list[Series]:
    """The series of a service, healthy for an hour, then in trouble."""
    changes = trouble.changes if trouble is not None else {}
    found = []
    for name in {**HEALTHY, **changes}:
        values = _forever(HEALTHY[name], BEGINS - 1) if name in HEALTHY else f"_x{BEGINS}"
        if name not in changes:
            values = _forever(HEALTHY[name], minutes)
        elif (later := changes[name]) is not None:
            values = f"{values} {_forever(later, minutes - BEGINS)}"
        found.append(Series.parse(name, values))
    return found


def _forever(values: str, minutes: int) -> str:
    return f"{values}x{minutes}" if "+" in values else f"{values}+0x{minutes}"


def test_every_alert_has_its_trouble() -> None:
    assert set(TROUBLE) == set(alerts())


@pytest.mark.parametrize("name", sorted(alerts()))
def test_it_is_silent_on_a_healthy_service(name: str) -> None:
    series = history(300)
    for minute in (10, 60, 299):
        assert alerts()[name].firing(series, minute * STEP) == set()


@pytest.mark.parametrize("name", sorted(alerts()))
def test_it_fires_on_its_trouble_after_its_time(name: str) -> None:
    alert, trouble = alerts()[name], TROUBLE[name]
    lasts = int(alert.lasts / STEP)
    series = history(BEGINS + lasts + 40, trouble)
    # A rate sees a change after some minutes, and a series that has gone is stale after five.
    late = 10
    fired = alert.firing(series, (BEGINS + lasts + late) * STEP)
    assert fired == {frozenset(trouble.labels.items())}
    if lasts:
        assert alert.firing(series, (BEGINS + lasts - 1) * STEP) == set(), "it fires before its time"


@pytest.mark.parametrize("name", sorted(alerts()))
def test_what_it_reads_is_exported_and_what_it_tells_is_known(name: str) -> None:
    """Metrics are those of the reference page; a label in the text is one that the expression keeps."""
    alert = alerts()[name]
    documented = set(re.findall(r"^\| `(topogate_\w+)`", METRICS, re.MULTILINE))
    assert {metric.removesuffix("_bucket") for metric in names(alert.expression)} <= documented
    kept = {label for group in re.findall(r"by \(([\w, ]+)\)", alert.expression) for label in group.split(", ")}
    told = {label for text in alert.annotations.values() for label in re.findall(r"\$labels\.(\w+)", text)}
    assert told <= kept
    assert alert.severity in ("critical", "warning")
    assert set(alert.annotations) == {"summary", "description", "runbook_url"}
    assert len(alert.annotations["summary"]) <= 80


def test_only_waits_that_more_capacity_ends_are_long() -> None:
    """A gang above its quota or with a wrong request waits for its namespace, not for the admin."""
    (listed,) = re.findall(r'reason=~"([\w|]+)"', alerts()["TopogateGangWaitsLong"].expression)
    ends = {"capacity", "nodes", "turn", "kept hosts"}
    assert set(listed.split("|")) == {code for code, reason in REASONS.items() if reason.until in ends}
