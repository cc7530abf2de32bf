"""The policy's section about node autoscaling: for which gangs new nodes are requested, and how.

The names and limits are those of the ProvisioningRequest API (autoscaling.x-k8s.io), of which every cluster autoscaler
has classes of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from engine.api.field import FieldError, path_of
from engine.api.schema import DnsLabel, DnsName, Duration, Section, wrong
from engine.api.text import did_you_mean, quote
from engine.topology.topology import DEFAULT

# Of the ProvisioningRequest API: the length of a parameter's value.
_MAX_VALUE: Final = 255
_MAX_PARAMETERS: Final = 32
_MAX_FALLBACKS: Final = 8
_KEY: Final = re.compile("[A-Za-z0-9][-A-Za-z0-9_./]{0,99}")

CHECK_CAPACITY: Final = "check-capacity.autoscaling.x-k8s.io"
BEST_EFFORT_ATOMIC: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
VALID_UNTIL: Final = "ValidUntilSeconds"
_NO_RETRY: Final = "noRetry"
# The parameter that each class of the cluster autoscaler needs to ever report Failed in a useful time.
_GIVES_UP: Final[Mapping[str, str]] = {BEST_EFFORT_ATOMIC: VALID_UNTIL, CHECK_CAPACITY: _NO_RETRY}


def _parameters(pairs: Mapping[str, str]) -> Mapping[str, str]:
    for key, value in pairs.items():
        if _KEY.fullmatch(key) is None:
            raise ValueError(f"keys must be letters, digits and -_./, at most 100; got {quote(key)}")
        if len(value) > _MAX_VALUE or not value.isprintable():
            raise ValueError(f"values must be text of at most {_MAX_VALUE} printable characters; {quote(key)} is not")
    seconds = pairs.get(VALID_UNTIL)
    if seconds is not None and re.fullmatch("[1-9][0-9]{0,8}", seconds) is None:
        raise ValueError(f'{VALID_UNTIL} must be a number of seconds as text, such as "600"; got {quote(seconds)}')
    return pairs


Parameters = Annotated[Mapping[str, str], Field(max_length=_MAX_PARAMETERS), AfterValidator(_parameters)]


class ProvisioningClass(Section):
    """A class of provisioning, with its parameters."""

    class_name: DnsName = Field(
        description=f"The provisioning class, as the node autoscaler names it, such as `{BEST_EFFORT_ATOMIC}`."
    )
    parameters: Parameters = Field(
        default={},
        description=f"The parameters of the request. A request that is not provisioned within its `{VALID_UNTIL}` "
        "counts as failed.",
    )

    @property
    def gives_up_after(self) -> float | None:
        """The seconds after which a request of it counts as failed; None: only when its autoscaler says so."""
        seconds = self.parameters.get(VALID_UNTIL)
        return None if seconds is None else float(seconds)


class ProvisioningRequests(ProvisioningClass):
    """How new nodes are requested."""

    after: Annotated[float, Duration("0s", "168h")] = Field(
        default=10.0, description="How long a gang waits before new nodes are requested for it."
    )
    fallbacks: tuple[ProvisioningClass, ...] = Field(
        default=(),
        max_length=_MAX_FALLBACKS,
        description="The classes that are tried one after the other when a request fails, or what it provisioned does "
        "not let the gang start; after the last one the first is tried again, with growing pauses.",
    )

    @property
    def classes(self) -> tuple[ProvisioningClass, ...]:
        """The classes in the order in which they are tried."""
        first = ProvisioningClass(className=self.class_name, parameters=self.parameters)
        return (first, *self.fallbacks)


class TopologyProvisioning(Section):
    """How new nodes are requested for the gangs of one topology."""

    name: DnsLabel = Field(description="The name of the topology.")
    provisioning_request: ProvisioningRequests | None = Field(
        default=None, description="As `autoscaling.provisioningRequest`, instead of it; null: none are requested."
    )


class Autoscaling(Section):
    """Whether new nodes are requested for gangs that wait for room."""

    provisioning_request: ProvisioningRequests | None = Field(
        default=None,
        description="The ProvisioningRequest that a gang gets while it waits for hosts or room on them; null: none. "
        "With one, a gang that is too large for its topology is not refused, but waits.",
    )
    topologies: tuple[TopologyProvisioning, ...] = Field(
        default=(), max_length=32, description="Other requests for the gangs of some topologies."
    )

    def of(self, topology: str | None) -> ProvisioningRequests | None:
        """Return how nodes are requested for the gangs of a topology; None if they are not."""
        own = (one for one in self.topologies if one.name == topology)
        found = next(own, None)
        return self.provisioning_request if found is None else found.provisioning_request

    @property
    def on(self) -> bool:
        """True if nodes are requested for any gang."""
        return self.provisioning_request is not None or any(one.provisioning_request for one in self.topologies)


def autoscaling_errors(raw: Any, topologies: Iterable[Any]) -> Iterator[FieldError]:
    """Yield the errors across the fields of a raw section; `topologies`: the names of the policy's topologies."""
    if not isinstance(raw, dict):
        return
    known = {name for name in topologies if isinstance(name, str)} or {DEFAULT}
    common = raw.get("provisioningRequest")
    if isinstance(common, dict):
        yield from _request(("autoscaling", "provisioningRequest"), common)
    entries = raw.get("topologies")
    seen: dict[str, str] = {}
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict):
            continue
        at = ("autoscaling", "topologies", index)
        name, request = entry.get("name"), entry.get("provisioningRequest")
        path = path_of((*at, "name"))
        if isinstance(name, str) and name in seen:
            yield wrong(path, f"{quote(name)} is a duplicate (first at {seen[name]})", kind="Duplicate value")
        elif isinstance(name, str):
            seen[name] = path
            if name not in known:
                yield wrong(path, f"{quote(name)} is not a topology of this policy{did_you_mean(name, known)}")
        if isinstance(request, dict):
            yield from _request((*at, "provisioningRequest"), request)
        elif request is None and common is None:
            yield wrong(path_of(at), "has no effect: no nodes are requested without it; remove it", kind="Forbidden")


def _request(at: tuple[str | int, ...], raw: Mapping[str, Any]) -> Iterator[FieldError]:
    listed = raw.get("fallbacks")
    fallbacks = listed if isinstance(listed, list) else []
    classes = [(at, raw), *(((*at, "fallbacks", index), one) for index, one in enumerate(fallbacks))]
    tried: list[tuple[tuple[Any, Any], str]] = []
    for number, (steps, one) in enumerate(classes):
        if not isinstance(one, dict) or not isinstance(name := one.get("className"), str):
            continue
        parameters = one.get("parameters") or {}
        same = next((where for before, where in tried if before == (name, parameters)), None)
        if same is not None:
            yield wrong(path_of(steps), f"is the same as {same}: it would fail again; remove it", kind="Forbidden")
        tried.append(((name, parameters), path_of(steps)))
        needed = _GIVES_UP.get(name)
        last = number == len(classes) - 1
        if needed is None or last or not isinstance(parameters, dict) or parameters.get(needed) not in (None, "false"):
            continue
        value = '"true"' if needed == _NO_RETRY else 'a number of seconds such as "600"'
        yield wrong(
            path_of((*steps, "parameters")),
            f"must have {needed} ({value}): without it requests of {name} go on for days and the next class of "
            "fallbacks is never tried",
        )
