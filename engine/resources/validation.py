"""Validates the devices that a pod requests: every error at once, at the path that the user wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from engine.api.field import FieldError
from engine.api.reasons import Code
from engine.api.text import sanitize
from engine.resources.containers import AmountError, Container, Path, PodResources, amount
from engine.resources.kinds import DeviceKinds
from engine.resources.names import FPGA, GPU, MEMORY, RATIO, RDMA, device_kind, device_names, whole_names
from engine.resources.request import Contradiction, device_contradictions

REASON: Final[Code] = "GPURequestInvalid"

_FRACTIONS: Final = {RDMA: "", FPGA: "", MEMORY: " of bytes"}
_PERCENT_INSTEAD: Final = f"; for part of a GPU ask for {GPU} in percent, such as 50"


def device_errors(pod: PodResources, *, path: str, vendors: Collection[str] = ()) -> tuple[FieldError, ...]:
    """Return every error; `path` is the JSON path of the pod's spec, `vendors` are the policy's.

    Checks each container alone, then the pod's total by Kubernetes' formula; ordered by container. Admission calls it
    through `translate`; `engine.resources.annotations` asks it whether a container of an earlier translation is valid.
    """
    whole = whole_names(vendors)
    names = device_names(whole)
    amounts: dict[Path, dict[str, int]] = {}
    errors: list[FieldError] = []
    faulty_kinds: set[str] = set()
    for container in pod:
        asked, found = _asked(container, path, names=names, whole=whole)
        found += [_error(container, path, one) for one in device_contradictions(asked, whole)]
        faulty_kinds |= {device_kind(name) for name in asked if any(f"[{name}]" in error.field for error in found)}
        errors += found
        amounts[container.path] = {name: number for name, number in asked.items() if number}
    errors += _total_errors(pod, amounts, path, whole=whole, faulty_kinds=faulty_kinds)
    return tuple(errors)


def kind_errors(pod: PodResources, kinds: DeviceKinds, *, path: str) -> tuple[FieldError, ...]:
    """Return every error in what a pod requests of devices of the policy's kinds; `path` as of `device_errors`."""
    if not kinds.kinds:
        return ()
    amounts: dict[Path, dict[str, int]] = {}
    errors: list[FieldError] = []
    faulty: set[str] = set()
    for container in pod:
        asked, found = _asked(container, path, names=kinds.names, whole=kinds.whole)
        found += [_error(container, path, one) for one in kinds.contradictions(asked)]
        faulty |= {kinds.kind_of_name[name] for name in asked if any(f"[{name}]" in error.field for error in found)}
        errors += found
        amounts[container.path] = {name: number for name, number in asked.items() if number}
    if len(amounts) > 1:
        total = {name: n for name, n in pod.total(amounts).items() if kinds.kind_of_name[name] not in faulty}
        for one in kinds.contradictions(total):
            last = [container for container in pod if one.name in amounts[container.path]][-1]
            errors.append(_error(last, path, one, total=total[one.name]))
    return tuple(errors)


def _asked(
    container: Container, path: str, *, names: Collection[str], whole: Collection[str]
) -> tuple[dict[str, int | None], list[FieldError]]:
    asked: dict[str, int | None] = {}
    errors: list[FieldError] = []
    for name in sorted(container.of(names)):
        values, wrong = _sides(container, path, name, whole=whole)
        errors += wrong
        if wrong:
            asked[name] = None
        elif len(set(values.values())) > 1:
            asked[name] = None
            errors.append(_unequal(container, path, name))
        elif (number := next(iter(values.values()))) > 0:
            asked[name] = number
        elif name not in whole:  # a zero count of GPUs is common in charts, means nothing and does no harm
            errors.append(_at(container, path, name, "must be more than 0; remove it to ask for none"))
            if name == RATIO:
                asked[name] = None
    return asked, errors


def _sides(
    container: Container, path: str, name: str, *, whole: Collection[str]
) -> tuple[dict[str, int], list[FieldError]]:
    values: dict[str, int] = {}
    wrong: dict[str, FieldError] = {}
    for side, listed in (("limits", container.limits), ("requests", container.requests)):
        if name not in listed:
            continue
        try:
            values[side] = amount(listed[name])
        except AmountError as error:
            message = str(error)
            if message.endswith("whole number"):
                message += _PERCENT_INSTEAD if name in whole else _FRACTIONS.get(name, " of percent")
            if not wrong or container.limits[name] != container.requests[name]:  # the same mistake is reported once
                wrong[side] = _at(container, path, name, message, side=side)
    return values, list(wrong.values())


def _total_errors(
    pod: PodResources,
    amounts: Mapping[Path, Mapping[str, int]],
    path: str,
    *,
    whole: Collection[str],
    faulty_kinds: Collection[str],
) -> Iterator[FieldError]:
    """Yield the errors of the pod's total; device kinds with an error in a container are skipped."""
    if len(amounts) < 2:  # noqa: PLR2004 - the total of one container is its own
        return
    total = {name: number for name, number in pod.total(amounts).items() if device_kind(name) not in faulty_kinds}
    for one in device_contradictions(total, whole):
        last = [container for container in pod if one.name in amounts[container.path]][-1]
        yield _error(last, path, one, total=total[one.name])


def _error(container: Container, path: str, one: Contradiction, total: int | None = None) -> FieldError:
    message = one.message
    if total is not None:
        shown = "in all containers together" if one.combination else f"the containers together ask for {total}"
        message = f"{message} ({shown})"
    if one.combination:
        return FieldError(
            container.field(path, _side(container, one.name), one.name), "Forbidden", None, REASON, message
        )
    return _at(container, path, one.name, message)


def _unequal(container: Container, path: str, name: str) -> FieldError:
    limit = container.limits[name]
    text = f"must equal the limit ({_shown(limit)}): devices are not overcommitted; make them equal, or set only one"
    return _at(container, path, name, text, side="requests")


def _at(container: Container, path: str, name: str, message: str, *, side: str | None = None) -> FieldError:
    side = side or _side(container, name)
    value = (container.limits if side == "limits" else container.requests)[name]
    return FieldError(
        field=container.field(path, side, name),
        kind="Invalid value",
        value=_shown(value),
        reason=REASON,
        message=message,
    )


def _side(container: Container, name: str) -> str:
    return "limits" if name in container.limits else "requests"


def _shown(value: object) -> str:
    if value is None:
        return "null"
    text = str(value) if isinstance(value, str | int | float) else type(value).__name__
    return sanitize(text)
