"""What others run or keep in the namespace of the service: it would go with the namespace."""

from __future__ import annotations

from typing import Final

from engine.cache.informers import UNFINISHED
from engine.cluster.client import KubeClient, object_path
from webhook.maintenance.installation import LABEL, PART_OF
from webhook.maintenance.object_names import object_names
from webhook.snapshot.installation import OTHER_PODS
from webhook.snapshot.side_by_side import side_by_side

# Work and data, by API group. Not ConfigMaps and Secrets: admins make some for the service itself.
IN_USE: Final = (
    ("", "pods"),
    ("", "persistentvolumeclaims"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("batch", "cronjobs"),
    ("batch", "jobs"),
)
_MOST: Final = 20  # that are looked at, of each resource
# The pods of the service have the label of its Deployment's template; the other objects that of the manifests.
_NOT_OURS: Final = f"{LABEL}!={PART_OF},{OTHER_PODS}"


def others_in(api: KubeClient, namespace: str) -> tuple[str, ...]:
    """Return what is in the namespace of the service and not its own, as `pods/web-0`; of pods the unfinished ones.

    Raises ApiFault.
    """
    found = side_by_side(lambda one: _names(api, namespace, *one), IN_USE)
    return tuple(f"{resource}/{name}" for (_, resource), named in zip(IN_USE, found, strict=True) for name in named)


def _names(api: KubeClient, namespace: str, group: str, resource: str) -> tuple[str, ...]:
    path = object_path(f"{group}/v1" if group else "v1", resource, namespace=namespace)
    query = {"labelSelector": _NOT_OURS, "limit": str(_MOST)}
    if resource == "pods":
        query["fieldSelector"] = UNFINISHED
    return object_names(api, path, query)
