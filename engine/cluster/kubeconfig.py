"""Reads kubeconfigs with the official client, and which of their contexts is the current one, as kubectl does.

The client merges several files as kubectl does, the first definition of a name first, but for this: it takes the
current context of the last file, even if that is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.api.text import sanitize

if TYPE_CHECKING:
    from kubernetes.config.kube_config import KubeConfigMerger


_MAX_WHY: Final = 300  # characters; paths of files are in it
_PREFIXES: Final = ("Invalid kube-config file. ", "Invalid kube-config. ")


def merged_kubeconfigs(files: str | None) -> KubeConfigMerger:
    """Read kubeconfigs (paths, separated as in `$KUBECONFIG`; None: the usual ones). Raises what the client raises."""
    from kubernetes.config import kube_config

    return kube_config.KubeConfigMerger(files or kube_config.KUBE_CONFIG_DEFAULT_LOCATION)


def current_context(merged: KubeConfigMerger) -> str | None:
    """Return the current context: that of the first file that names one; None without one."""
    named = (one.get("current-context") for one in merged.config_files.values())
    return next((one for one in named if one and isinstance(one, str)), None)


def why_unusable(error: Exception) -> str:
    """Return why kubeconfigs cannot be used, from what the client raises: names of keys and files, never values."""
    from kubernetes.config import ConfigException
    from yaml import YAMLError

    match error:
        case ConfigException():
            text = str(error)
            for prefix in _PREFIXES:
                text = text.removeprefix(prefix)
            return sanitize(text, _MAX_WHY)
        case YAMLError():
            return "not valid YAML"  # its own text quotes the line
        case OSError():
            return error.strerror or "no such file"  # raised for the one that the client finds missing
    return type(error).__name__
