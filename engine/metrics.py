"""The engine's metrics, scraped with the others from /metrics. Names: docs/reference/metrics.md."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

registry = CollectorRegistry()

plans = Counter("topogate_plans", "Decisions of the planner by outcome.", ["outcome"], registry=registry)
plan_seconds = Histogram(
    "topogate_plan_seconds",
    "Time of one planning decision, quota check included.",
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5),
    registry=registry,
)
queued = Gauge("topogate_gangs_waiting", "Gangs that wait for room (on the leader).", registry=registry)
waiting = Gauge(
    "topogate_gangs_waiting_by_reason", "Gangs that wait, by the reason they say.", ["reason"], registry=registry
)
rooms_kept = Gauge(
    "topogate_rooms_kept", "Gangs for which room is kept, having waited too long (on the leader).", registry=registry
)
topology_nodes = Gauge(
    "topogate_topology_nodes",
    "Nodes by topology: in it, without the label of a level, or not of its nodeSelector.",
    ["topology", "state"],
    registry=registry,
)
leading = Gauge("topogate_leader", "1 on the replica that leads.", registry=registry)
writes = Counter(
    "topogate_writes", "Requests that write, by what they do and how they ended.", ["what", "result"], registry=registry
)
controller_faults = Counter("topogate_controller_faults", "Unexpected errors in the leader's loop.", registry=registry)
policy_info = Gauge("topogate_policy_info", "1 for the policy in force, by its hash.", ["hash"], registry=registry)
policy_refused = Gauge(
    "topogate_policy_refused", "1 while the ConfigMap holds a policy that is not taken.", registry=registry
)
cache_age = Gauge("topogate_cache_age_seconds", "Since a watch last said anything.", ["collection"], registry=registry)
forbidden_collections = Gauge(
    "topogate_forbidden_collections",
    "1 for a collection that the service may not read.",
    ["collection"],
    registry=registry,
)
unreadable_objects = Gauge(
    "topogate_unreadable_objects",
    "Objects that a watch leaves out because they cannot be read.",
    ["collection"],
    registry=registry,
)
device_faults = Gauge(
    "topogate_hosts_with_device_faults",
    "Hosts of which devices do not count: not understood, or not what the node reports.",
    registry=registry,
)
