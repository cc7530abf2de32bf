"""Reads kubeconfigs with the official client, and which of their contexts is the current one, as kubectl does.

The client merges several files as kubectl does, the first definition of a name first, but for this: it takes the
current context of the last file, even if that is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubernetes.config.kube_config import KubeConfigMerger


def merged_kubeconfigs(files: str | None) -> KubeConfigMerger:
    """Read kubeconfigs (paths, separated as in `$KUBECONFIG`; None: the usual ones). Raises what the client raises."""
    from kubernetes.config import kube_config

    return kube_config.KubeConfigMerger(files or kube_config.KUBE_CONFIG_DEFAULT_LOCATION)


def current_context(merged: KubeConfigMerger) -> str | None:
    """Return the current context: that of the first file that names one; None without one."""
    named = (one.get("current-context") for one in merged.config_files.values())
    return next((one for one in named if one and isinstance(one, str)), None)
