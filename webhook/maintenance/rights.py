"""Asks the API server which rights the caller has, before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from engine.api.text import join_comma
from engine.cluster.client import ApiUnavailable, KubeClient, object_path
from engine.cluster.wire import UNREADABLE
from webhook.snapshot.connection import right_text
from webhook.snapshot.side_by_side import side_by_side

_PATH: Final = object_path("authorization.k8s.io/v1", "selfsubjectaccessreviews")


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


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


def missing_rights(api: KubeClient, rights: Iterable[Right]) -> tuple[Right, ...]:
    """Return the rights that the caller does not have. Raises ApiFault if the API server does not say."""
    wanted = sorted(set(rights))
    found = side_by_side(lambda one: _allowed(api, one), wanted)
    return tuple(one for one, allowed in zip(wanted, found, strict=True) if not allowed)


def _allowed(api: KubeClient, right: Right) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "name": right.name,
        "namespace": right.namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    answer = api.request("POST", _PATH, body=body)
    try:
        return msgspec.json.decode(answer, type=_Review).status.allowed
    except UNREADABLE:
        raise ApiUnavailable(f"POST {_PATH}: not a review of rights") from None
