"""The rights of the service's account: asked of the API server one by one, else compared with the roles it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from engine.api import names
from engine.cluster.client import ApiFault, ApiUnavailable, KubeClient, get_or_none, object_path
from engine.decoding.wire import UNREADABLE
from webhook.snapshot.connection import right_text
from webhook.snapshot.installation import GrantedRights, account
from webhook.snapshot.side_by_side import side_by_side

_TIMEOUT: Final = (5.0, 10.0)
_RBAC: Final = "rbac.authorization.k8s.io/v1"


@dataclass(frozen=True, slots=True, order=True)
class NeededRight:
    """A verb on a resource (`pods/eviction`: with its subresource), on one object if it has a `name`.

    `namespaced`: in the service's namespace alone.
    """

    group: str
    resource: str
    verb: str
    name: str = ""
    namespaced: bool = False

    def __str__(self) -> str:
        """Return it in words: `patch pods`, `get leases.coordination.k8s.io topogate`."""
        return right_text(self.verb, self.group, self.resource, name=self.name)


class _Review(msgspec.Struct):
    allowed: bool = False


class _Reviewed(msgspec.Struct):
    status: _Review = msgspec.field(default_factory=_Review)


class _RoleRef(msgspec.Struct):
    kind: str = ""
    name: str = ""


class _Subject(msgspec.Struct):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _Binding(msgspec.Struct, rename="camel"):
    role_ref: _RoleRef
    subjects: list[_Subject] | None = None


class _Bindings(msgspec.Struct):
    items: list[_Binding] | None = None


class _Role(msgspec.Struct):
    rules: list[dict[str, Any]] | None = None


# Made here, by one thread: msgspec crashes where two threads are the first to decode a type (`engine.decoding.wire`).
_decode_reviewed: Final = msgspec.json.Decoder(_Reviewed).decode
_decode_bindings: Final = msgspec.json.Decoder(_Bindings).decode
_decode_role: Final = msgspec.json.Decoder(_Role).decode


def rights_of(rule: Mapping[str, Any], *, namespaced: bool = False) -> Iterator[NeededRight]:
    """Yield the rights of a rule of a role."""
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for name in rule.get("resourceNames") or ("",):
                yield from (NeededRight(group, resource, verb, name, namespaced) for verb in rule.get("verbs") or ())


def missing_rights(
    needed: Iterable[NeededRight], cluster: Iterable[Mapping[str, Any]], within: Iterable[Mapping[str, Any]]
) -> list[NeededRight]:
    """Return the needed rights that no rule grants; `within`: the rules of roles in the service's namespace."""
    everywhere = list(cluster)
    here = [*everywhere, *within]
    return [
        right
        for right in needed
        if not any(_grants(rule, right) for rule in (here if right.namespaced else everywhere))
    ]


def _grants(rule: Mapping[str, Any], right: NeededRight) -> bool:
    objects = rule.get("resourceNames") or ()
    return (
        _any(rule, "apiGroups", right.group)
        and _any(rule, "resources", right.resource)
        and _any(rule, "verbs", right.verb)
        and (not objects or right.name in objects)
    )


def _any(rule: Mapping[str, Any], field: str, wanted: str) -> bool:
    given = rule.get(field) or ()
    return "*" in given or wanted in given


def granted_rights(api: KubeClient, namespace: str, needed: Sequence[NeededRight]) -> GrantedRights:
    """Return which of the rights the service's account lacks.

    The caller may ask about another account only with a right of his own (SubjectAccessReview); else the roles that he
    can read are compared.
    """
    try:
        _allowed(api, namespace, needed[0])  # alone: without the right to ask, one request is enough
        allowed = side_by_side(partial(_allowed, api, namespace), needed)
        return GrantedRights(
            "reviews", len(needed), [str(right) for right, ok in zip(needed, allowed, strict=True) if not ok]
        )
    except ApiFault:
        pass
    try:
        everywhere = _rules(api, None, namespace)
        within = _rules(api, namespace, namespace)
    except (ApiFault, *UNREADABLE):
        return GrantedRights(None)
    missing = missing_rights(needed, everywhere, within)
    return GrantedRights("roles", len(needed), [str(right) for right in missing])


def is_allowed(
    api: KubeClient,
    verb: str,
    group: str,
    resource: str,
    *,
    name: str = "",
    namespace: str = "",
    account_in: str | None = None,
) -> bool:
    """Ask the API server for one right: of the caller, or of the service's account in the namespace `account_in`.

    `resource` is with its subresource (`pods/eviction`); a `namespace` of "" means all. Raises ApiFault.
    """
    plural, _, subresource = resource.partition("/")
    attributes = {
        "verb": verb,
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "name": name,
        "namespace": namespace,
    }
    kind = "SelfSubjectAccessReview"
    spec: dict[str, Any] = {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
    if account_in is not None:
        kind = "SubjectAccessReview"
        spec["user"] = account(account_in)
        spec["groups"] = ["system:serviceaccounts", f"system:serviceaccounts:{account_in}", "system:authenticated"]
    path = object_path("authorization.k8s.io/v1", f"{kind.lower()}s")
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = api.request("POST", path, body=body, timeout=_TIMEOUT)
    try:
        return _decode_reviewed(answer).status.allowed
    except UNREADABLE:
        raise ApiUnavailable(f"POST {path}: not a review of rights") from None


def _allowed(api: KubeClient, namespace: str, right: NeededRight) -> bool:
    where = namespace if right.namespaced else ""
    return is_allowed(
        api, right.verb, right.group, right.resource, name=right.name, namespace=where, account_in=namespace
    )


def _rules(api: KubeClient, within: str | None, namespace: str) -> list[Mapping[str, Any]]:
    """Return the rules that bindings grant the account, in the whole cluster or within a namespace."""
    plural = "clusterrolebindings" if within is None else "rolebindings"
    path = object_path(_RBAC, plural, namespace=within)
    bindings = _decode_bindings(api.request("GET", path, timeout=_TIMEOUT)).items or ()
    ours = _Subject("ServiceAccount", names.SERVICE_ACCOUNT, namespace)
    found: list[Mapping[str, Any]] = []
    for reference in {(one.role_ref.kind, one.role_ref.name) for one in bindings if ours in (one.subjects or ())}:
        found += _role(api, *reference, within=within)
    return found


def _role(api: KubeClient, kind: str, name: str, *, within: str | None) -> list[dict[str, Any]]:
    """Return the rules of a role; [] where a binding names one that does not exist."""
    cluster = kind == "ClusterRole"
    path = object_path(_RBAC, "clusterroles" if cluster else "roles", namespace=None if cluster else within, name=name)
    body = get_or_none(api, path, timeout=_TIMEOUT)
    return [] if body is None else _decode_role(body).rules or []
