"""The engine's metrics, served with those of the web layer at /metrics; docs/reference/metrics.md lists them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

registry = CollectorRegistry()

plans = Counter("topogate_plans", "Planning decisions by outcome.", ["outcome"], registry=registry)
plan_seconds = Histogram(
    "topogate_plan_seconds",
    "Time of one planning decision, including the quota check.",
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5),
    registry=registry,
)
queued = Gauge("topogate_gangs_waiting", "Gangs that wait for capacity (on the leader).", registry=registry)
waiting = Gauge(
    "topogate_gangs_waiting_by_reason", "Waiting gangs by the reason of their Placement.", ["reason"], registry=registry
)
nominations = Gauge(
    "topogate_rooms_kept", "Gangs that waited too long and have hosts kept free (on the leader).", registry=registry
)
topology_nodes = Gauge(
    "topogate_topology_nodes",
    "Nodes by topology: in it, without the label of a level, or outside its nodeSelector.",
    ["topology", "state"],
    registry=registry,
)
leading = Gauge("topogate_leader", "1 on the leader.", registry=registry)
writes = Counter(
    "topogate_writes", "Write requests by method, resource and result.", ["what", "result"], registry=registry
)
events = Counter(
    "topogate_events",
    "Events about objects: posted, failed (not tried again), or dropped as too many.",
    ["result"],
    registry=registry,
)
controller_faults = Counter("topogate_controller_faults", "Unexpected errors in the leader's loop.", registry=registry)
policy_info = Gauge("topogate_policy_info", "1 for the policy in force, by its hash.", ["hash"], registry=registry)
policy_refused = Gauge("topogate_policy_refused", "1 while the policy in the ConfigMap is refused.", registry=registry)
cache_age = Gauge(
    "topogate_cache_age_seconds", "Time since a watch last received data.", ["collection"], registry=registry
)
forbidden_collections = Gauge(
    "topogate_forbidden_collections",
    "1 for a collection that the service may not read.",
    ["collection"],
    registry=registry,
)
unreadable_objects = Gauge(
    "topogate_unreadable_objects",
    "Objects that a watch leaves out because they cannot be decoded.",
    ["collection"],
    registry=registry,
)
device_faults = Gauge(
    "topogate_hosts_with_device_faults",
    "Hosts with devices that do not count: their Device object is invalid or differs from the node's resources.",
    registry=registry,
)
