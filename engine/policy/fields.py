"""Field types of the policy: validated text, lists without duplicates, and namespace patterns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, Field, WithJsonSchema

from engine.api.schema import MAX_LIST, LabelKey, distinct, rule
from engine.resources.names import is_kind

# Defaults of `queue.maxGangPods` and `queue.maxNamespaceGangs`, which limits of single namespaces may not exceed.
GANG_PODS: Final = 10_000
NAMESPACE_GANGS: Final = 5_000

_MAX_IDENTITY: Final = 253
_PATTERN: Final = re.compile(r"[a-z0-9*](?:[-a-z0-9*]{0,61}[a-z0-9*])?", re.ASCII)
KIND_REGEX: Final = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
PATTERN_REGEX: Final = "^[a-z0-9*]([-a-z0-9*]{0,61}[a-z0-9*])?$"


def _is_identity(text: str) -> bool:
    return 0 < len(text) <= _MAX_IDENTITY and text.isprintable() and " " not in text


def _with_kube_system(exempt: tuple[str, ...]) -> tuple[str, ...]:
    return exempt if "kube-system" in exempt else ("kube-system", *exempt)


Annotations = Annotated[Mapping[str, str], Field(max_length=32)]
NamespacePattern = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": PATTERN_REGEX}),
    rule(lambda text: _PATTERN.fullmatch(text) is not None, "must be a namespace name, * stands for any part of it"),
]
NamespacePatterns = Annotated[
    tuple[NamespacePattern, ...], Field(min_length=1, max_length=MAX_LIST), AfterValidator(distinct)
]
LevelWords = Annotated[tuple[LabelKey, ...], Field(min_length=1, max_length=MAX_LIST), AfterValidator(distinct)]
Identity = Annotated[
    str,
    rule(_is_identity, f"must be a name of 1 to {_MAX_IDENTITY} characters without spaces"),
]
Identities = Annotated[tuple[Identity, ...], Field(max_length=MAX_LIST), AfterValidator(distinct)]
Schedulers = Annotated[tuple[Identity, ...], Field(min_length=1, max_length=MAX_LIST), AfterValidator(distinct)]
ResourceNames = Annotated[tuple[LabelKey, ...], Field(max_length=MAX_LIST), AfterValidator(distinct)]
KindName = Annotated[
    str,
    WithJsonSchema({"type": "string", "pattern": KIND_REGEX}),
    rule(is_kind, "must be a name of at most 63 lower-case letters, digits and -, and not gpu, rdma or fpga"),
]
ExemptNamespaces = Annotated[
    tuple[NamespacePattern, ...],
    Field(max_length=MAX_LIST),
    AfterValidator(distinct),
    AfterValidator(_with_kube_system),
]
