"""Asks the API server which rights the caller has, before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.api.text import join_comma
from engine.cluster.client import KubeClient
from webhook.snapshot.connection import right_text
from webhook.snapshot.granted_rights import is_allowed
from webhook.snapshot.side_by_side import side_by_side


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A verb on a resource: everywhere, or on one object (`name`), in one namespace or all (`namespace` is "")."""

    verb: str
    group: str
    resource: str
    name: str = ""
    namespace: str = ""

    @property
    def text(self) -> str:
        """The right in words: `delete clusterroles.rbac.authorization.k8s.io topogate`."""
        return right_text(self.verb, self.group, self.resource, name=self.name, namespace=self.namespace)


def lacking_text(rights: Iterable[Right]) -> list[str]:
    """Return a line for each kind of right that is missing, with the names of all objects that it is missing for."""
    alike: dict[Right, list[str]] = {}
    for one in sorted(set(rights)):
        alike.setdefault(replace(one, name=""), []).append(one.name)
    return [f"no right to {replace(one, name=join_comma(named)).text}" for one, named in alike.items()]


def missing_rights(api: KubeClient, rights: Iterable[Right]) -> tuple[Right, ...]:
    """Return the rights that the caller does not have. Raises ApiFault if the API server does not say."""
    wanted = sorted(set(rights))
    found = side_by_side(lambda one: _allowed(api, one), wanted)
    return tuple(one for one, allowed in zip(wanted, found, strict=True) if not allowed)


def _allowed(api: KubeClient, right: Right) -> bool:
    return is_allowed(api, right.verb, right.group, right.resource, name=right.name, namespace=right.namespace)
