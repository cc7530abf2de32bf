"""Reads which context is the current one in several kubeconfigs, as kubectl does.

The official client merges them as kubectl does, the first definition of a name first, but for this: it takes the
current context of the last file, even if that is empty.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def current_context(files: str | None) -> str | None:
    """Return the current context of kubeconfigs (paths, separated as in `$KUBECONFIG`): that of the first with one.

    None without one, and for None: the usual kubeconfig. Raises what YAML and the file system raise.
    """
    import yaml

    for file in (files or "").split(os.pathsep):
        path = Path(file).expanduser()
        if file and path.exists():
            found = yaml.safe_load(path.read_text(encoding="utf-8"))
            named = found.get("current-context") if isinstance(found, Mapping) else None
            if named and isinstance(named, str):
                return named
    return None
