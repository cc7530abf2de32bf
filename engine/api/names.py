"""Every wire name of the engine, defined once.

A test checks docs/reference/names.md against this module.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "topogate.dev/"  # of every key of ours

# Requests: annotations that users write on workloads, pod templates and pods.
REQUIRE: Final = "topogate.dev/require-topology"
PREFER: Final = "topogate.dev/prefer-topology"
UNCONSTRAINED: Final = "topogate.dev/unconstrained-topology"
TOPOLOGY: Final = "topogate.dev/topology"
SLICE_TOPOLOGY: Final = "topogate.dev/slice-topology"
SLICE_SIZE: Final = "topogate.dev/slice-size"
SLICES: Final = "topogate.dev/slices"
PROFILE: Final = "topogate.dev/profile"
COLOCATE: Final = "topogate.dev/colocate"
EXCLUSIVE: Final = "topogate.dev/exclusive-topology"
SPREAD: Final = "topogate.dev/spread-topology"
SPREAD_GROUP: Final = "topogate.dev/spread-group"
RELAX_AFTER: Final = "topogate.dev/relax-after"
MIN_AVAILABLE: Final = "topogate.dev/min-available"
SCHEDULE_TIMEOUT: Final = "topogate.dev/schedule-timeout"
START_TIMEOUT: Final = "topogate.dev/start-timeout"
RECOVER_TIMEOUT: Final = "topogate.dev/recover-timeout"
PREEMPTIBLE: Final = "topogate.dev/preemptible"
REPLACE: Final = "topogate.dev/replace"
REPLAN: Final = "topogate.dev/replan"
GANG_NAME: Final = "topogate.dev/gang-name"
GANG_SIZE: Final = "topogate.dev/gang-size"
POD_GROUP: Final = "topogate.dev/pod-group"
DEVICE_SCOPE: Final = "topogate.dev/device-scope"
GPU_STRATEGY: Final = "topogate.dev/gpu-strategy"
DEVICE_SELECTOR: Final = "topogate.dev/device-selector"
RDMA_SELECTOR: Final = "topogate.dev/rdma-selector"
VF_SELECTOR: Final = "topogate.dev/vf-selector"
RDMA_SCOPE: Final = "topogate.dev/rdma-scope"

REQUEST_KEYS: Final = frozenset(
    {
        REQUIRE,
        PREFER,
        UNCONSTRAINED,
        TOPOLOGY,
        SLICE_TOPOLOGY,
        SLICE_SIZE,
        SLICES,
        PROFILE,
        COLOCATE,
        EXCLUSIVE,
        SPREAD,
        SPREAD_GROUP,
        RELAX_AFTER,
        MIN_AVAILABLE,
        SCHEDULE_TIMEOUT,
        START_TIMEOUT,
        RECOVER_TIMEOUT,
        PREEMPTIBLE,
        REPLACE,
        REPLAN,
        GANG_NAME,
        GANG_SIZE,
        POD_GROUP,
        DEVICE_SCOPE,
        GPU_STRATEGY,
        DEVICE_SELECTOR,
        RDMA_SELECTOR,
        VF_SELECTOR,
        RDMA_SCOPE,
    }
)

# Names that we write.
GATE: Final = "topogate.dev/placement"  # the scheduling gate; also the annotation with the Placement's name
HELD_BY: Final = "topogate.dev/held-by"
HELD_BY_SUSPEND: Final = "suspend"
MANAGED: Final = "topogate.dev/managed"  # label on templates and pods
POD_SET: Final = "topogate.dev/pod-set"  # label on templates and pods
# Label on workloads with a request. Not under our prefix: releases before it refuse labels there that they do not know,
# and while replicas are replaced, one of them validates what another one has labelled.
REQUESTS_PLACEMENT: Final = "admission.topogate.dev/requests-placement"
GANG: Final = "topogate.dev/gang"  # label on pods: the Placement's name
PLACEMENT: Final = "topogate.dev/placement"  # annotation on templates and pods: the Placement's name
REVISION: Final = "topogate.dev/revision"
DOMAIN_PATH: Final = "topogate.dev/domain"  # annotation on placed pods: label values joined by "/", host last
RANK: Final = "topogate.dev/rank"
# Labels on Placements, for selectors: kind and name of the workload.
WORKLOAD_KIND: Final = "topogate.dev/workload-kind"
WORKLOAD_NAME: Final = "topogate.dev/workload-name"
SLICE_INDEX: Final = "topogate.dev/slice-index"  # annotation on placed pods: one number a layer, joined by "/"
# Annotation on placed pods with known GPUs: their UUIDs or minors, separated by commas.
VISIBLE_DEVICES: Final = "topogate.dev/visible-devices"
VISIBLE_DEVICES_VARIABLE: Final = "NVIDIA_VISIBLE_DEVICES"  # of a container, from that annotation
# Annotations on placed pods with parts of known GPUs, of each GPU: percent of its compute, memory in MiB (`4096m`); and
# the variables of HAMi's library in containers, from them.
GPU_CORE_LIMIT: Final = "topogate.dev/gpu-core-limit"
GPU_MEMORY_LIMIT: Final = "topogate.dev/gpu-memory-limit"
GPU_CORE_LIMIT_VARIABLE: Final = "CUDA_DEVICE_SM_LIMIT"
GPU_MEMORY_LIMIT_VARIABLE: Final = "CUDA_DEVICE_MEMORY_LIMIT"
ORIGINAL_REQUESTS: Final = "topogate.dev/original-requests"
GPU_REQUEST: Final = "topogate.dev/gpu-request"

# Annotations and labels that only we (and the policy's admins) may write: the marks of a gang, which we also take off,
# and the notes of translated GPU requests.
MARK_LABELS: Final = (MANAGED, POD_SET, REQUESTS_PLACEMENT, GANG)
MARK_ANNOTATIONS: Final = (
    HELD_BY,
    PLACEMENT,
    REVISION,
    DOMAIN_PATH,
    RANK,
    SLICE_INDEX,
    VISIBLE_DEVICES,
    GPU_CORE_LIMIT,
    GPU_MEMORY_LIMIT,
)
NOTE_ANNOTATIONS: Final = (ORIGINAL_REQUESTS, GPU_REQUEST)
OWNED_ANNOTATIONS: Final = frozenset({*MARK_ANNOTATIONS, *NOTE_ANNOTATIONS})
OWNED_LABELS: Final = frozenset(MARK_LABELS)

# Aliases: dialect -> foreign key -> our key.
KUEUE_PREFIX: Final = "kueue.x-k8s.io/"
KAI_PREFIX: Final = "kai.scheduler/"
POD_GROUP_PREFIX: Final = "pod-group.scheduling.sigs.k8s.io/"
POD_GROUP_NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
POD_GROUP_MIN: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
SCHEDULER_PLUGINS_POD_GROUP: Final = "scheduling.x-k8s.io/pod-group"
KOORDINATOR_GANG_NAME: Final = "gang.scheduling.koordinator.sh/name"
KOORDINATOR_GANG_MIN: Final = "gang.scheduling.koordinator.sh/min-available"
KOORDINATOR_GANG_WAIT: Final = "gang.scheduling.koordinator.sh/waiting-time"

ALIASES: Final[dict[str, dict[str, str]]] = {
    "kueue": {
        "kueue.x-k8s.io/require-topology": REQUIRE,
        "kueue.x-k8s.io/prefer-topology": PREFER,
        "kueue.x-k8s.io/podset-required-topology": REQUIRE,
        "kueue.x-k8s.io/podset-preferred-topology": PREFER,
        "kueue.x-k8s.io/podset-unconstrained-topology": UNCONSTRAINED,
        "kueue.x-k8s.io/podset-slice-required-topology": SLICE_TOPOLOGY,
        "kueue.x-k8s.io/podset-slice-size": SLICE_SIZE,
        "kueue.x-k8s.io/podset-slice-required-topology-constraints": SLICES,
        "kueue.x-k8s.io/podset-group-name": COLOCATE,
    },
    "kai": {
        "kai.scheduler/topology": TOPOLOGY,
        "kai.scheduler/topology-required-placement": REQUIRE,
        "kai.scheduler/topology-preferred-placement": PREFER,
        "kai.scheduler/segment-topology-required-placement": SLICE_TOPOLOGY,
    },
}
# All annotations that request something, whatever dialects the policy reads.
ASKING_KEYS: Final = REQUEST_KEYS.union(*ALIASES.values())
# Keys that request nothing where they are "false", and take back what pod-group labels beside them request.
FLAGS: Final = (
    UNCONSTRAINED,
    *(key for keys in ALIASES.values() for key, about in keys.items() if about == UNCONSTRAINED),
)
# Aliases that are read only beside another one: key -> (that alias, our key). Without it they are unread.
ALIASES_BESIDE: Final[dict[str, tuple[str, str]]] = {
    "kai.scheduler/segment-size": ("kai.scheduler/segment-topology-required-placement", SLICE_SIZE),
}
# Koordinator's annotations in JSON that mean one or several of ours (`engine.resources.hints`), beside a request.
DEVICE_ALLOCATE_HINT: Final = "scheduling.koordinator.sh/device-allocate-hint"
DEVICE_JOINT_ALLOCATE: Final = "scheduling.koordinator.sh/device-joint-allocate"
DEVICE_HINTS: Final = (DEVICE_ALLOCATE_HINT, DEVICE_JOINT_ALLOCATE)
# KAI's label of a pod's part of a group. It says something only beside a request, or the annotation of the group.
KAI_SUBGROUP: Final = "kai.scheduler/subgroup-name"
KAI_GROUP: Final = "pod-group-name"
# Foreign annotations that are not supported: their user gets a warning, no more. Under our own dialect are those of
# tools without a dialect; the hints are among them, as they ask for nothing by themselves.
UNREAD: Final[dict[str, frozenset[str]]] = {
    "topogate": frozenset(
        {
            "volcano.sh/network-topology-mode",
            "volcano.sh/network-topology-highest-tier",
            "volcano.sh/numa-topology-policy",
            "volcano.sh/task-topology-affinity",
            "volcano.sh/task-topology-anti-affinity",
            "volcano.sh/task-topology-task-order",
            "volcano.sh/sla-waiting-time",
            "sla-waiting-time",
            "alpha.jobset.sigs.k8s.io/node-selector",
            "scheduling.volcano.sh/group-name",
            "scheduling.volcano.sh/group-min-member",
            "scheduling.k8s.io/group-name",
            "gang.scheduling.koordinator.sh/network-topology-spec",
            "gang.scheduling.koordinator.sh/network-topology-index",
            "scheduling.koordinator.sh/network-topology-selector",
            *DEVICE_HINTS,
            "scheduling.koordinator.sh/gpu-partition-spec",
            "scheduling.koordinator.sh/numa-topology-spec",
            "scheduling.koordinator.sh/reservation-affinity",
        }
    ),
    "kueue": frozenset(
        {
            "kueue.x-k8s.io/podset-topology-spreading",
            "kueue.x-k8s.io/pod-index-offset",
            "kueue.x-k8s.io/pod-group-total-count",
            "kueue.x-k8s.io/pod-group-pod-index-label",
            "kueue.x-k8s.io/job-min-parallelism",
        }
    ),
    "kai": frozenset(
        {
            "kai.scheduler/segment-size",
            "kai.scheduler/segment-topology-preferred-placement",
            "kai.scheduler/pod-index-label",
            "kai.scheduler/batch-min-member",
            KAI_GROUP,
            "gpu-fraction",
            "gpu-fraction-num-devices",
            "gpu-memory",
        }
    ),
    "pod-group": frozenset(
        {
            "gang.scheduling.koordinator.sh/groups",
            "gang.scheduling.koordinator.sh/mode",
            "gang.scheduling.koordinator.sh/match-policy",
            "pod-group.scheduling.sigs.k8s.io/match-policy",
        }
    ),
}
UNREAD_KEYS: Final = frozenset(key for keys in UNREAD.values() for key in keys)
KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
KUEUE_GATE_PREFIX: Final = "kueue.x-k8s.io/"
KUEUE_WORKLOAD: Final = "kueue.x-k8s.io/workload"  # annotation on templates and pods of workloads that Kueue admitted
EXCLUSIVE_TOPOLOGY: Final = frozenset(
    {
        "alpha.jobset.sigs.k8s.io/exclusive-topology",
        "leaderworkerset.sigs.k8s.io/exclusive-topology",
        "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
    }
)

# Koordinator's: which devices a pod has (engine.devices).
DEVICE_ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
# A label that every device with a moduleID has, for selectors.
MODULE_ID: Final = "topogate.dev/module-id"
# On a Device object: which devices the kubelet gave to pods by itself; the design has both keys.
DEVICE_CHECKPOINTS: Final = ("node.koordinator.sh/devices-checkpoints", "node.koordinator.sh/gpu-checkpoints")

# Kubernetes' own.
MIRROR: Final = "kubernetes.io/config.mirror"  # a static pod of a kubelet, as the API server shows it
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
HOSTNAME: Final = "kubernetes.io/hostname"
DEFAULT_SCHEDULER: Final = "default-scheduler"

# The custom resource and the configuration.
API_GROUP: Final = "topogate.dev"
API_VERSION: Final = "topogate.dev/v1alpha1"
PLACEMENT_KIND: Final = "Placement"
PLACEMENTS: Final = "placements"
POLICY_NAME: Final = "topogate-policy"
POLICY_KEY: Final = "policy.yaml"
LAST_GOOD_POLICY_NAME: Final = "topogate-policy-last-good"
CA_SECRET_NAME: Final = "topogate-ca"  # noqa: S105 - the name of a Secret, not a secret
LEASE_NAME: Final = "topogate"
SERVICE_NAME: Final = "topogate"
SERVICE_ACCOUNT: Final = "topogate"
NAMESPACE: Final = "topogate-system"  # the default; TOPOGATE_NAMESPACE or the pod's own namespace overrides it
MUTATING_CONFIGURATION: Final = "topogate"
POLICY_CONFIGURATION: Final = "topogate-policy"  # the leader's own pair
FIELD_MANAGER: Final = "topogate"

# The pod set of a kind that has only one.
MAIN: Final = "main"

# The level that every topology has, last, by node name.
HOST_LEVEL: Final = "host"
# Instead of a duration: no time-out.
NONE: Final = "none"
# In a request instead of a level: the lowest level with a domain that could hold all of its pods.
AUTO: Final = "auto"

# Annotations on pods that use provisioned nodes: the autoscaler counts them against the ProvisioningRequest, and starts
# no further nodes for them. The second is the first as earlier versions read it.
CONSUME: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
OLD_CONSUME: Final = "cluster-autoscaler.kubernetes.io/consume-provisioning-request"
CONSUME_CLASS: Final = "autoscaling.x-k8s.io/provisioning-class-name"
