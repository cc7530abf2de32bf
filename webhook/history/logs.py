"""Reads the logs of the service's pods through the API server, with the caller's own rights.

A container's log begins where the kubelet rotated it last, or at its start; of a container that was restarted and whose
log was not rotated, in the log of the one before. Older records are gone, and the answer says since when there are all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec

from engine.api.duration import parse_time
from engine.cluster.client import TIMEOUT, ApiError, ApiFault, KubeClient, object_path
from engine.decoding.wire import UNREADABLE
from engine.history.lines import MAX_LINE, parse_line
from webhook.history.parts import LogPart, read_part
from webhook.snapshot.connection import fault_text, right_text
from webhook.snapshot.installation import SERVICE_PODS, service_container
from webhook.snapshot.side_by_side import side_by_side

MOST_PODS: Final = 50
MOST_BYTES: Final = 256 * 1024 * 1024  # of one log; kubelets keep 10 MiB unless they are told otherwise
_HEAD: Final = 4096  # bytes in which the first line's time is
_FIRST_LINE: Final = 60.0  # seconds from the start of the service within which it has written its first line


class LogsProblem(Exception):
    """No log can be read; the text is one line."""


@dataclass(frozen=True, slots=True)
class ServiceLogs:
    """The logs of the service's pods, and which of them could not be read."""

    parts: tuple[LogPart, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Replica:
    """A pod of the service; `started`: since when its container runs (seconds since the epoch), if that is known."""

    pod: str
    container: str | None
    restarted: bool
    started: float | None


def service_logs(
    api: KubeClient,
    *,
    namespace: str,
    since: float,
    now: float,
    progress: Callable[[int], None] = lambda _lines: None,
) -> ServiceLogs:
    """Return the records of all pods of the service from `since` on. Raises LogsProblem if no log can be read."""
    replicas = _replicas(api, namespace)
    read = partial(_log, api, namespace, since=since, now=now, progress=progress)
    found: list[LogPart | ApiFault] = side_by_side(read, replicas)
    faults = [one for one in found if isinstance(one, ApiFault)]
    if any(isinstance(one, ApiError) and one.status == HTTPStatus.FORBIDDEN for one in faults):
        raise LogsProblem(_no_right("get", "pods/log", namespace))
    parts = tuple(one for one in found if isinstance(one, LogPart))
    problems = [
        f"the log of pod {one.pod} cannot be read ({fault_text(answer)})"
        for one, answer in zip(replicas, found, strict=True)
        if isinstance(answer, ApiFault)
    ]
    if not parts:
        raise LogsProblem(problems[0])
    return ServiceLogs(parts, tuple(problems))


def _no_right(verb: str, resource: str, namespace: str) -> str:
    return (
        f"no right to {right_text(verb, '', resource, namespace=namespace)}, where the service runs and keeps its "
        "history in its logs; without it: kubectl get events (of the last hour), and topogate explain KIND/NAME for a "
        "gang of your own"
    )


def _replicas(api: KubeClient, namespace: str) -> list[_Replica]:
    path, query = object_path("v1", "pods", namespace=namespace), {"labelSelector": SERVICE_PODS}
    try:
        body = msgspec.json.decode(api.request("GET", path, query=query, timeout=TIMEOUT))
        found = [_replica(one) for one in body["items"]]
    except ApiError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            raise LogsProblem(_no_right("list", "pods", namespace)) from None
        raise LogsProblem(f"the pods of namespace {namespace} cannot be listed ({fault_text(error)})") from None
    except ApiFault as fault:
        raise LogsProblem(f"the API server does not answer: {fault_text(fault)}") from None
    except (*UNREADABLE, KeyError, TypeError, AttributeError):
        raise LogsProblem(f"the pods of namespace {namespace} cannot be read: not a list of pods") from None
    if not found:
        raise LogsProblem(
            f"no pods of Topogate in namespace {namespace}: name its namespace with --service-namespace, or read saved "
            "logs with -f"
        )
    return sorted(found, key=lambda one: one.pod)[:MOST_PODS]


def _replica(body: Any) -> _Replica:
    """Return the pod, with the container whose log it is."""
    container = service_container(body)
    statuses = body.get("status", {}).get("containerStatuses") or ()
    status: dict[str, Any] = next((one for one in statuses if one.get("name") == container), {})
    restarts, running = status.get("restartCount"), (status.get("state") or {}).get("running") or {}
    started = parse_time(running.get("startedAt"))
    return _Replica(str(body["metadata"]["name"]), container, isinstance(restarts, int) and restarts > 0, started)


def _log(
    api: KubeClient,
    namespace: str,
    replica: _Replica,
    *,
    since: float,
    now: float,
    progress: Callable[[int], None],
) -> LogPart | ApiFault:
    """Return the records of a pod, those of its previous container too; or why they could not be read."""
    path = object_path("v1", "pods", namespace=namespace, name=replica.pod, subresource="log")
    query = {"timestamps": "true", **({"container": replica.container} if replica.container else {})}
    recent = {**query, "sinceSeconds": str(max(1, math.ceil(now - since))), "limitBytes": str(MOST_BYTES)}
    begins: list[float] = []
    too_large = False

    def lines() -> Iterator[bytes]:
        nonlocal too_large
        for previous in (True, False) if replica.restarted else (False,):
            which = {"previous": "true"} if previous else {}
            try:
                first = _first_time(api, path, {**query, **which, "limitBytes": str(_HEAD)})
                if not previous and first is not None and first > (replica.started or first) + _FIRST_LINE:
                    begins.clear()  # rotated: what is between the two logs is gone
                begins.extend(() if first is None else (first,))
                size = 0
                with api.stream(path, {**recent, **which}, read_timeout=TIMEOUT[1]) as stream:
                    for line in stream:
                        size += len(line) + 1
                        yield line
                too_large = too_large or size >= MOST_BYTES - MAX_LINE  # an unfinished last line is dropped
            except ApiError as error:
                # The kubelet may have removed the container before; a pod that starts has no log yet.
                if not previous and error.status != HTTPStatus.BAD_REQUEST:
                    raise

    try:
        part = read_part(replica.pod, lines(), since=since, progress=progress)
    except ApiFault as fault:
        return fault
    complete = part.begins if part.start_dropped else min(begins, default=now)
    return replace(part, begins=complete, end_unread=too_large)


def _first_time(api: KubeClient, path: str, query: dict[str, str]) -> float | None:
    """Return the time of a log's first line; None if it has none."""
    head = api.request("GET", path, query=query, timeout=TIMEOUT)
    return parse_line(head.partition(b"\n")[0]).at
