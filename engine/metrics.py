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
oldest_wait = Gauge(
    "topogate_gang_oldest_wait_seconds",
    "How long the oldest of the waiting gangs has waited, by the reason of its Placement (on the leader).",
    ["reason"],
    registry=registry,
)
wait_seconds = Histogram(
    "topogate_gang_wait_seconds",
    "Time from a gang's first wait to its placement, or to the end of its wait without one (on the leader).",
    ["level", "size", "outcome"],
    buckets=(1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 7 * 24 * 3600),
    registry=registry,
)
nominations = Gauge(
    "topogate_rooms_kept", "Gangs that waited too long and have hosts kept free (on the leader).", registry=registry
)
preemptions = Counter(
    "topogate_preemptions",
    "Preemptions: decided; then placed, or ended without that; none: nobody was found who could end.",
    ["result"],
    registry=registry,
)
proposals = Counter(
    "topogate_restart_proposals",
    "Searches of restarts that would let a waiting gang fit: found, or none.",
    ["result"],
    registry=registry,
)
moves = Counter(
    "topogate_moves",
    "Moves of gangs for a waiting one (`defragment.mode: act`): decided; then it was placed, or ended without that.",
    ["result"],
    registry=registry,
)
topology_nodes = Gauge(
    "topogate_topology_nodes",
    "Nodes by topology: in it, without the label of a level, or outside its nodeSelector.",
    ["topology", "state"],
    registry=registry,
)
gangs = Gauge("topogate_gangs", "Gangs by the phase of their Placement (on the leader).", ["phase"], registry=registry)
oldest_phase = Gauge(
    "topogate_gang_oldest_phase_seconds",
    "Time since the state of a gang last changed, of the gang for which it is longest, by phase (on the leader).",
    ["phase"],
    registry=registry,
)
without_pods = Gauge(
    "topogate_gangs_without_pods",
    "Gangs that gave their slots back because no pod was created in time, and have no others yet (on the leader).",
    registry=registry,
)
excess_domains = Gauge(
    "topogate_excess_domains",
    "Domains that the placed gangs use beyond the fewest with as many hosts as each of them uses (on the leader).",
    ["topology", "level"],
    registry=registry,
)
level_domains = Gauge(
    "topogate_domains", "Domains of a level (on the leader).", ["topology", "level"], registry=registry
)
largest_gang = Gauge(
    "topogate_largest_gang_pods",
    "Pods of the largest gang that fits now into one domain of a level (on the leader).",
    ["topology", "level"],
    registry=registry,
)
fragmentation = Gauge(
    "topogate_fragmentation_ratio",
    "Share of the pods that fit now for which the domain with most room has none (on the leader).",
    ["topology", "level"],
    registry=registry,
)
topology_gpus = Gauge(
    "topogate_topology_gpus", "GPUs of a topology by state (on the leader).", ["topology", "state"], registry=registry
)
domain_gpus = Gauge(
    "topogate_domain_gpus",
    "GPUs of a domain above the host level by state (on the leader).",
    ["topology", "level", "domain", "state"],
    registry=registry,
)
build_info = Gauge("topogate_build_info", "1 for the version of the service.", ["version"], registry=registry)
leading = Gauge("topogate_leader", "1 on the leader.", registry=registry)
writes = Counter(
    "topogate_writes", "Write requests by method, resource and result.", ["what", "result"], registry=registry
)
provisioning_requests = Counter(
    "topogate_provisioning_requests",
    "ProvisioningRequests by what became of them: created, refused, accepted, provisioned, failed, booking_expired, "
    "capacity_revoked, deleted.",
    ["result"],
    registry=registry,
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
watch_events = Counter(
    "topogate_watch_events",
    "Changes of objects that watches have received, without bookmarks.",
    ["resource"],
    registry=registry,
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
