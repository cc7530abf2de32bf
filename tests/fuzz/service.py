"""The service in this process as the fuzzer asks it: bytes in, status and answer out, with the processor time.

What is a finding stands here: an exception (also one that is only logged), an HTTP status of 5xx, an answer that takes
too long, one that the API server would refuse, or text with control characters.
"""

from __future__ import annotations

import base64
import gc
import json
import logging
import math
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import jsonpatch
import msgspec

from bench.gang import live_view
from engine.cache.state import ClusterState
from engine.cache.stores import Stores
from engine.policy.model import Policy, parse_policy
from tests.fuzz.schemas import ROOT
from webhook.handlers.mutate_and_check import mutate_and_check
from webhook.handlers.validate import validate
from webhook.server.endpoint import Endpoint
from webhook.server.metrics import Metrics

SLOW: Final = 0.1  # seconds of processor time of this thread
AGAIN: Final = 4  # a slow answer is asked for again so often: the quickest counts
MARKS_GONE: Final = "were removed during admission"  # what /validate says of a pod that /mutate has not seen
Json = dict[str, Any]
T = TypeVar("T")


class Violation(Exception):
    """An input for which a property does not hold; `signature` is the same for inputs with the same fault."""

    def __init__(self, signature: str, detail: str = "") -> None:
        super().__init__(f"{signature}: {detail}" if detail else signature)
        self.signature = signature


def fault_of(error: BaseException) -> Violation:
    """The violation that an exception is: its type, and where in the product it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if Path(one.filename).is_relative_to(ROOT) and ".venv" not in one.filename]
    at = next((one for one in reversed(own) if "/tests/" not in one.filename), own[-1] if own else frames[-1])
    where = f"{Path(at.filename).name}:{at.name}"
    return Violation(f"{type(error).__name__} in {where}", f"line {at.lineno}: {str(error)[:300]}")


class LoggedFaults(logging.Handler):
    """Keeps the exceptions that the product logs instead of raising them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.found.append(record.exc_info[1])


@contextmanager
def quiet_logs() -> Iterator[LoggedFaults]:
    """Nothing is printed; exceptions are kept."""
    root, handler = logging.getLogger(), LoggedFaults()
    handlers, level = root.handlers, root.level
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    try:
        yield handler
    finally:
        root.handlers = handlers
        root.setLevel(level)


def timed(what: str, call: Callable[[], T], *, limit: float = SLOW) -> T:
    """The result of a call, which must be quick; a slow one is repeated, as the machine may have been busy."""
    begin = time.thread_time()
    result = call()
    took = time.thread_time() - begin
    for _ in range(AGAIN):
        if took <= limit:
            return result
        gc.collect()
        begin = time.thread_time()
        call()
        took = min(took, time.thread_time() - begin)
    if took > limit:
        raise Violation(f"slow {what}", f"{took * 1000:.0f} ms of processor time")
    return result


class Service:
    """Both webhooks on a cluster state, behind the endpoint that serves them."""

    def __init__(self, view: ClusterState, faults: LoggedFaults) -> None:
        live = live_view(view)
        view.refresh()
        self._faults = faults
        self._endpoint = Endpoint(
            mutate=lambda review, deadline: mutate_and_check(review, live, deadline),
            validate=lambda review, deadline: validate(review, live, deadline),
            metrics=Metrics(),
            review_cpu=math.inf,
        )

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer. Raises Violation for 5xx and slow ones."""
        return timed(path, lambda: self._post(path, body))

    def ask(self, path: str, body: bytes) -> Json | None:
        """The response in an AdmissionReview; None for a request that is none. Raises Violation."""
        status, answer = self.post(path, body)
        if status != 200:
            return None
        response: Json = msgspec.json.decode(answer)["response"]
        _check_form(path, response)
        return response

    def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        self._faults.found.clear()
        answer = self._endpoint.answer(path, lambda: body, received=time.monotonic(), timeout="10s")
        if self._faults.found:
            raise fault_of(self._faults.found[0])
        if answer.status >= 500:
            raise Violation(f"{answer.status} of {path}", answer.body.decode(errors="replace")[:300])
        return answer.status, answer.body


def _check_form(path: str, response: Json) -> None:
    texts = [*response.get("warnings", ())]
    if not response["allowed"]:
        status = response["status"]
        if status["code"] not in (403, 422):
            raise Violation(f"refused with {status['code']}")
        texts += [status["message"], *(cause.get("message", "") for cause in status["details"].get("causes", ()))]
    if path == "validate" and "patch" in response:
        raise Violation("a patch of validate")
    for text in texts:
        if any(char < " " or "\x7f" <= char <= "\x9f" for char in text):
            raise Violation("control characters in an answer", repr(text)[:300])


def _refused_as_new(service: Service, sent: Json, why: str) -> bool:
    """Return True if the object is refused for the same reason when it is created.

    A workload that is resumed and gets a request in one UPDATE is held, and so judged like a new one.
    """
    request = {key: value for key, value in sent["request"].items() if key != "oldObject"}
    created = service.ask("validate", json.dumps({**sent, "request": {**request, "operation": "CREATE"}}).encode())
    return created is not None and not created["allowed"] and created["status"]["message"] == why


def both_webhooks(service: Service, body: bytes) -> None:
    """Ask /mutate and /validate as the API server would. Raises Violation.

    The patch must apply, a second pass must give none, and /validate must not refuse what it would have let through
    without the patch.
    """
    asked = service.ask("mutate", body)
    before = service.ask("validate", body)
    if asked is None or not asked["allowed"] or "patch" not in asked:
        return
    try:
        sent = json.loads(body)
    except ValueError:  # bad bytes in a part that the service does not read
        return
    operations = json.loads(base64.b64decode(asked["patch"]))
    try:
        changed = jsonpatch.apply_patch(sent["request"]["object"], operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise Violation("a patch that does not apply", str(error)[:300]) from None
    try:
        again = json.dumps({**sent, "request": {**sent["request"], "object": changed}}).encode()
    except RecursionError:
        return
    after = service.ask("validate", again)
    if after is None:
        raise Violation("the patched object is no valid review")
    if not after["allowed"]:
        why = after["status"]["message"]
        let_through = before is not None and before["allowed"] and not _refused_as_new(service, sent, why)
        if let_through or MARKS_GONE in why:
            raise Violation("validate refuses what mutate wrote", why[:300])
        return  # what is refused is never stored
    second = service.ask("mutate", again)
    if second is None or "patch" in second:
        patch = base64.b64decode((second or {}).get("patch", "")).decode()
        raise Violation("the second pass gives a patch", patch[:300])


def state_under(other: ClusterState, policy: Policy | str) -> ClusterState:
    """Another state with the same objects, under another policy."""
    found = ClusterState(Stores(), parse_policy(policy) if isinstance(policy, str) else policy)
    for name, store in found.stores.all().items():
        store.replace(list(other.stores.all()[name].values()))
    found.refresh()
    return found
