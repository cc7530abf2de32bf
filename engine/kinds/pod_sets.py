"""Reads the pod sets of an object by its entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from engine.api.field import is_label_value
from engine.api.rank import Missing, Term
from engine.api.text import shown
from engine.kinds.conditions import holds
from engine.kinds.expressions import IntExpression, Variables, bind, number
from engine.kinds.paths import (
    NodeError,
    Path,
    PathNode,
    PathScope,
    Steps,
    each,
    find,
    mapping_at,
    text_at,
    whole_number,
)
from engine.kinds.schema import (
    MAX_CLAIM_TEMPLATES,
    MAX_POD_SETS,
    Cost,
    Creation,
    KindEntry,
    PodSetSpec,
    Succeeded,
    Text,
)
from engine.kinds.structure import NO_CLAIMS, ParsedClaims, ParsedPodSet

_NAME: Final = Path("$.metadata.name", ("metadata", "name"), whole=True)
Found = tuple[tuple[ParsedPodSet, ...], list[NodeError]]


def pod_sets_of(entry: KindEntry, scope: PathScope, *, creation: Creation) -> Found:
    """Return the pod sets of an object in the order of its entry, and the faults."""
    pod_sets: list[ParsedPodSet] = []
    faults: list[NodeError] = []
    common: Cost = "lost"
    try:
        common = cost(entry, None, scope)  # once: it may read long lists
    except NodeError as fault:
        faults.append(fault)
    for spec in entry.pod_sets:
        try:
            for position, node in enumerate(_elements(spec, scope)):
                if len(pod_sets) == MAX_POD_SETS:
                    raise NodeError(node.steps, f"is one pod set too many; at most {MAX_POD_SETS} are read")
                reader = _Reader(
                    entry,
                    spec,
                    PathScope(scope.root, node),
                    pod_sets,
                    creation=creation,
                    common=common,
                    position=position,
                )
                found = reader.pod_set()
                faults += reader.faults
                if found is not None:
                    pod_sets.append(found)
        except NodeError as fault:
            faults.append(fault)
    return tuple(pod_sets), faults


def _elements(spec: PodSetSpec, scope: PathScope) -> Iterator[PathNode]:
    if spec.for_each is None:
        yield scope.root
        return
    nodes = each(spec.for_each, scope, limit=MAX_POD_SETS)
    if spec.keys is None:
        yield from nodes
        return
    # In the order of the entry, for any order in the file: pods that lead the others come first.
    wanted = {key.lower(): place for place, key in enumerate(spec.keys)}
    found = [(wanted[key], node) for node in nodes if (key := str(node.steps[-1]).lower()) in wanted]
    yield from (node for _, node in sorted(found, key=lambda one: one[0]))


class _Reader:
    """Reads one pod set and collects its faults: each part is read even if others have faults."""

    def __init__(
        self,
        entry: KindEntry,
        spec: PodSetSpec,
        scope: PathScope,
        before: list[ParsedPodSet],
        *,
        creation: Creation,
        common: Cost,
        position: int,
    ) -> None:
        self._entry = entry
        self._spec = spec
        self._scope = scope
        self._before = before
        self._creation = creation
        self._common = common
        self._position = position
        self.faults: list[NodeError] = []

    def pod_set(self) -> ParsedPodSet | None:
        spec, scope = self._spec, self._scope
        try:
            if spec.when is not None and not holds(spec.when, scope):
                return None
            template = find(spec.template, scope)
            if template is not None:
                mapping_at(template)
        except NodeError as fault:
            self.faults.append(fault)
            return None
        where = template.steps if template is not None else _steps(spec.template, scope)
        if template is None and spec.missing == "skip":
            return None
        if template is None and spec.missing == "error":
            message = "the template of the pods is missing"
            self.faults.append(NodeError(where, message, kind="Required value", absent=True))
        name = self._name(where)
        variables = self._variables()
        count = self._count(spec.count, variables, where) or 0
        minimum = self._count(spec.minimum, variables, where)
        total = self._count(spec.total, variables, where)
        replica = self._count(spec.replica, variables, where)
        rank = self._rank(variables)
        try:
            selector = tuple((key, self._text(source)) for key, source in spec.selector.items())
            replace = self._common if spec.replace is None else cost(self._entry, spec, scope)
        except NodeError as fault:
            self.faults.append(fault)
        if self.faults:
            return None
        counted = self._counted(spec.count)
        return ParsedPodSet(
            name=name,
            steps=where,
            template=template.value if template is not None else None,
            count=count,
            minimum=count if minimum is None else min(minimum, count),
            total=count if total is None else total,
            rank=rank,
            selector=selector,
            creation=spec.creation or self._creation,
            replace=replace,
            beside=spec.member == "beside",
            replica=replica or None,
            counted=counted[1] if counted is not None else None,
            claims=self._claims(variables),
            succeeded=self._succeeded(name, variables),
        )

    def _succeeded(self, name: str, variables: Variables) -> int:
        """Return how many pods have succeeded; none where the status cannot be read: a controller wrote it."""
        spec, scope = self._spec.succeeded, self._scope
        if spec is None:
            return 0
        try:
            entries = (PathScope(scope.root, node) for node in each(spec.entries, scope))
            entry = next((one for one in entries if _name_in_status(spec, one) == name), None)
            count = find(spec.count, entry) if entry is not None else None
            pods = number(spec.pods, scope, variables) if spec.pods is not None else 1
            return whole_number(count) * pods if count is not None and isinstance(pods, int) else 0
        except NodeError:
            return 0

    def _claims(self, variables: Variables) -> ParsedClaims:
        """Return the claims of templates; what cannot be read is left out, as no pod set fails because of a volume."""
        spec, scope = self._spec, self._scope
        if spec.claim_templates is None:
            return NO_CLAIMS
        try:
            node = find(spec.claim_templates, scope)
        except NodeError:
            return NO_CLAIMS
        listed = node.value if node is not None and isinstance(node.value, list | tuple) else ()
        templates = tuple(found for one in listed[:MAX_CLAIM_TEMPLATES] if (found := _claim_template(one)) is not None)
        if not templates:
            return NO_CLAIMS
        more = len(listed) - MAX_CLAIM_TEMPLATES
        try:
            first = number(spec.first_ordinal, scope, variables) if spec.first_ordinal is not None else None
            name = find(_NAME, scope)
            owner = text_at(name) if name is not None else ""
        except NodeError:
            first, owner = None, ""
        return ParsedClaims(templates, max(0, more), owner, first if owner and isinstance(first, int) else None)

    def _name(self, where: Steps) -> str:
        try:
            name = self._text(self._spec.name)
        except NodeError as fault:
            self.faults.append(fault)
            return ""
        if name and is_label_value(name):
            return name
        path = self._spec.name.path
        steps = where if path is None else _steps(path, self._scope)
        kind = "Invalid value" if name else "Required value"
        message = f"must be a label value of 1 to 63 characters; got {shown(name)}" if name else "the name is missing"
        self.faults.append(NodeError(steps, message, kind=kind, absent=not name))
        return ""

    def _text(self, source: Text) -> str | None:
        if source.text is not None:
            return source.text
        if source.key is not None:
            key = str(self._scope.here.steps[-1])
            return key.lower() if source.key == "lower" else key
        if source.path is None:
            return None
        node = find(source.path, self._scope)
        text = text_at(node) if node is not None else ""
        return text or (f"{source.fallback}{self._position}" if source.fallback is not None else "")

    def _variables(self) -> Variables:
        variables: dict[str, int | Missing] = {}
        for name, expression in self._spec.vars.items():
            try:
                variables[name] = number(expression, self._scope, variables)
            except NodeError as fault:
                self.faults.append(fault)
                variables[name] = Missing("it cannot be read", wrong=True)
        return variables

    def _count(self, expression: IntExpression | None, variables: Variables, where: Steps) -> int | None:
        """Return a count; the fault of an unreadable variable is recorded already."""
        if expression is None:
            return None
        try:
            found = number(expression, self._scope, variables)
        except NodeError as fault:
            self.faults.append(fault)
            return None
        if isinstance(found, int):
            return max(0, found)
        if not found.wrong:
            message = f"the number of its pods is not known: {found.reason}"
            self.faults.append(NodeError(where, message, absent=True))
        return None

    def _counted(self, expression: IntExpression, within: frozenset[str] = frozenset()) -> tuple[int, Steps] | None:
        """Return the value and the steps of the field that an expression gets its value from, or None.

        Of several fields it is the decisive one: the smallest under `min`, else the largest.
        """
        if expression.path is not None:
            try:
                node = find(expression.path, self._scope)
            except NodeError:
                return None  # of a branch that the count does not take
            return (node.value, node.steps) if node is not None and isinstance(node.value, int) else None
        name = expression.var
        if name is not None and name not in within and name in self._spec.vars:
            return self._counted(self._spec.vars[name], within | {name})
        parts = (self._counted(part, within) for _, part in expression.parts())
        found = [part for part in parts if part is not None]
        pick = min if expression.min is not None else max
        return pick(found, key=lambda part: part[0], default=None)

    def _rank(self, variables: Variables) -> Term | None:
        spec = self._spec
        try:
            if spec.rank is None or (spec.ranked is not None and not holds(spec.ranked, self._scope)):
                return None
            term = bind(spec.rank, self._scope, variables)
        except NodeError as fault:
            self.faults.append(fault)
            return None
        return None if isinstance(term, Missing) else term


def cost(entry: KindEntry, spec: PodSetSpec | None, scope: PathScope) -> Cost:
    """Return the cost of deleting an unbound pod: by the pod set's own rule, read at its element, or else the kind's.

    Raises NodeError.
    """
    replace, where = entry.replace, PathScope(scope.root, scope.root)
    if spec is not None and spec.replace is not None:
        replace, where = spec.replace, scope
    if replace is None:
        return "lost"
    return next((one.cost for one in replace.overrides if holds(one.when, where)), replace.cost)


def _name_in_status(spec: Succeeded, entry: PathScope) -> str:
    """Return the name of the pod set that an entry of the status is about. Raises NodeError."""
    if spec.name is None:
        return str(entry.here.steps[-1]).lower()
    name = find(spec.name, entry)
    return text_at(name) if name is not None else ""


def _claim_template(template: object) -> tuple[str, str | None] | None:
    """Return the name and the StorageClass of a claim template; None for what is none."""
    metadata, spec = (template.get("metadata"), template.get("spec")) if isinstance(template, Mapping) else (None, None)
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    wanted = spec.get("storageClassName") if isinstance(spec, Mapping) else None
    if not isinstance(name, str) or not name or not isinstance(wanted, str | None):
        return None
    return name, wanted


def _steps(path: Path, scope: PathScope) -> Steps:
    start: Mapping[bool, PathNode] = {True: scope.root, False: scope.here}
    return (*start[path.whole].steps, *path.steps)
