"""The connection pool to the API server: bytes out, bytes in, faults as two exceptions.

The official client supplies credentials, TLS, proxies and the token's reload; its pool is used directly, because its
models cost 1 ms and 115 KB a pod and its request path re-encodes the body. No code here depends on a kind.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import urllib3

from engine.api.text import sanitize
from engine.cluster.impersonation import Headers, ImpersonationProblem, headers_of_kubeconfig, repeated
from engine.cluster.kubeconfig import current_context, merged_kubeconfigs, why_unusable
from engine.decoding.wire import UNREADABLE

# A LIST page of 500 objects of the largest size that etcd takes (1.5 MiB) is far above this; real pages are 5-20 MB.
MAX_RESPONSE: Final = 256 * 1024 * 1024
# One watch line is one object in JSON: 1.5 MiB in etcd, a little more as JSON.
MAX_LINE: Final = 16 * 1024 * 1024
# Ten watches and one for each kind of workload stay open, sixteen writers work beside them.
POOL_SIZE: Final = 64
MAX_SERVER: Final = 300  # characters
MAX_MESSAGE: Final = 2000
TIMEOUT: Final = (5.0, 30.0)  # connect, read
# Credentials are used for this long before they are asked for again (seconds), unless a request fails. The client's
# hook sets the whole configuration anew each time, with the proxies of the environment: 0.1 ms a request.
CREDENTIALS_KEPT: Final = 1.0

JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"


class ApiFault(Exception):
    """A request that did not succeed; `retry_after` is the pause that the server asks for, in seconds, or None."""

    retry_after: float | None = None


class ApiUnavailable(ApiFault):
    """No usable answer: the connection, TLS, the time limit, or credentials that cannot be read."""


class ApiError(ApiFault):
    """A request that the server refused.

    `status` is the HTTP status, `reason` and `message` are those of the Status object ("" when the body was none),
    `causes` are its (field, message) pairs. Never holds request headers or bodies.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        causes: tuple[tuple[str, str], ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after = retry_after


class _Cause(msgspec.Struct):
    field: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None
    retry_after_seconds: float | None = msgspec.field(name="retryAfterSeconds", default=None)


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_decode_status = msgspec.json.Decoder(_Status).decode


def status_error(body: bytes | msgspec.Raw, *, http_status: int = 0, retry_after: float | None = None) -> ApiError:
    """Parse a Status object (an answer's body, or the object of a watch's ERROR event) into an ApiError.

    `http_status` wins over the body's code when it is not 0; a body that is no Status gives an error without a message.
    """
    try:
        status = _decode_status(body)
    except UNREADABLE:
        status = _Status()
    details = status.details or _Details()
    causes = tuple((cause.field, cause.message[:MAX_MESSAGE]) for cause in (details.causes or ())[:100])
    wish = details.retry_after_seconds if retry_after is None else retry_after
    if wish is not None and wish <= 0:
        wish = None
    message = status.message[:MAX_MESSAGE] or "no Status in the answer"
    return ApiError(http_status or status.code, status.reason, message, causes, wish)


class Stream:
    """The lines of an open watch; iterate in one thread, `close` from any.

    Lines come without their newline, whole (split chunks are joined as bytes, so UTF-8 is never cut); an unfinished
    last line is dropped. Iteration ends when the server ends the answer or `close` was called, and raises
    ApiUnavailable when the connection breaks, nothing arrives for the read time limit, or a line is too long.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse, what: str) -> None:
        self._response = response
        self._what = what
        self._closed = threading.Event()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._response.close()

    def __iter__(self) -> Iterator[bytes]:
        pieces: list[bytes] = []
        size = 0
        while chunk := self._read():
            first, *rest = chunk.split(b"\n")
            pieces.append(first)
            size += len(first)
            if size > MAX_LINE:
                raise ApiUnavailable(f"{self._what}: a line of more than {MAX_LINE} bytes")
            for piece in rest:
                line = b"".join(pieces)
                pieces, size = [piece], len(piece)
                if line:
                    yield line

    def close(self) -> None:
        """End the iteration that another thread is in; harmless when it has ended."""
        self._closed.set()
        try:
            # Only the read side is shut: closing here would wait for the lock that the blocked reader holds.
            self._response.shutdown()
        except (OSError, RuntimeError, ValueError):
            return

    def _read(self) -> bytes:
        if self._closed.is_set():
            return b""
        try:
            return self._response.read1(65536)
        except Exception as error:
            # A socket that is shut under the reader fails in many ways (TLS, chunk framing, closed file).
            if self._closed.is_set():
                return b""
            if isinstance(error, (urllib3.exceptions.HTTPError, OSError, ValueError)):
                raise ApiUnavailable(f"{self._what}: {_describe(error)}") from None
            raise


class KubeClient:
    """Sends requests to one API server; safe for use by many threads at once.

    `impersonation`: headers that are sent with each, in which a name may be several times. Raises ApiUnavailable if
    that cannot be sent.
    """

    def __init__(self, client: Any, user_agent: str, *, impersonation: Headers = ()) -> None:
        self._impersonation = impersonation
        self._configuration = client.configuration
        self._host = str(client.configuration.host).rstrip("/")
        self._pools = client.rest_client.pool_manager
        self._user_agent = user_agent
        self._credentials = threading.Lock()
        self._header: tuple[float, dict[str, str]] = (float("-inf"), {})  # until when, and what is sent
        self._opener: tuple[Any, str] | None = None
        # urllib3 joins what a proxy forwards: one group `a, b` in the place of two.
        if repeated(impersonation) and self._pools.proxy is not None and self._host.startswith("http:"):
            raise ApiUnavailable("several groups cannot be impersonated through a proxy without TLS")

    @property
    def server(self) -> str:
        """The address of the API server, for people: without a name and password in it."""
        scheme, _, rest = self._host.rpartition("://")
        return sanitize(f"{scheme}://{rest.rpartition('@')[2]}" if scheme else rest, MAX_SERVER)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        content_type: str = JSON,
        timeout: tuple[float, float] = TIMEOUT,
        most: int | None = None,
    ) -> bytes:
        """Send one request and return the answer's body.

        `timeout` is (connect, read) in seconds; `most`: bytes of the answer, by default MAX_RESPONSE. Raises ApiError
        for every status but 2xx, ApiUnavailable when there is no whole answer; only a GET is sent again, once, when a
        kept-alive connection turned out to be dead.
        """
        what = f"{method} {path}"
        payload = None if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        attempts = 2 if method == "GET" else 1
        most = MAX_RESPONSE if most is None else most
        while True:
            attempts -= 1
            try:
                response = self._open(
                    method, path, query=query, timeout=timeout, body=payload, content_type=content_type
                )
                try:
                    data = response.read(most + 1)
                    if len(data) > most:
                        raise ApiUnavailable(f"{what}: an answer of more than {most} bytes")
                    response.release_conn()
                except BaseException:
                    response.close()
                    raise
            except urllib3.exceptions.ProtocolError as error:
                if attempts:
                    continue
                self._forget_credentials()
                raise ApiUnavailable(f"{what}: {_describe(error)}") from None
            except (urllib3.exceptions.HTTPError, OSError) as error:
                self._forget_credentials()
                raise ApiUnavailable(f"{what}: {_describe(error)}") from None
            if HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
                return data
            if response.status == HTTPStatus.UNAUTHORIZED:
                self._forget_credentials()
            raise status_error(data, http_status=response.status, retry_after=_retry_after(response.headers))

    def stream(
        self, path: str, query: Mapping[str, str], *, connect_timeout: float = 5.0, read_timeout: float = 100.0
    ) -> Stream:
        """Open a GET with an endless answer (a watch); use as a context manager.

        `read_timeout` is the longest silence in seconds. Raises as `request` does.
        """
        what = f"GET {path}"
        try:
            response = self._open("GET", path, query=query, timeout=(connect_timeout, read_timeout))
            if response.status == HTTPStatus.OK:
                return Stream(response, what)
            data = response.read(MAX_LINE)
            response.close()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self._forget_credentials()
            raise ApiUnavailable(f"{what}: {_describe(error)}") from None
        if response.status == HTTPStatus.UNAUTHORIZED:
            self._forget_credentials()
        raise status_error(data, http_status=response.status, retry_after=_retry_after(response.headers))

    def _open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        timeout: tuple[float, float],
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> urllib3.BaseHTTPResponse:
        opener, base = self._opener or self._find_opener()
        headers: dict[str, str] | urllib3.HTTPHeaderDict = {"Accept": JSON, "User-Agent": self._user_agent}
        if body is not None:
            headers["Content-Type"] = content_type
        headers.update(self._authorization())
        if self._impersonation:
            headers = urllib3.HTTPHeaderDict(headers)
            for name, value in self._impersonation:
                headers.add(name, value)
        # A redirect is never followed: it would carry the token to a host that was not configured.
        response: urllib3.BaseHTTPResponse = opener.urlopen(
            method,
            f"{base}{path}?{urlencode(query)}" if query else base + path,
            redirect=False,
            body=body,
            headers=headers,
            timeout=urllib3.Timeout(connect=timeout[0], read=timeout[1]),
            preload_content=False,
            retries=False,
        )
        return response

    def _find_opener(self) -> tuple[Any, str]:
        """Return the pool to send requests with, and what comes before their paths.

        There is one server, hence one pool; the manager would parse the URL and find that pool at every request. A
        proxy may want the whole URL, so there the manager stays.
        """
        if self._pools.proxy is None:
            self._opener = self._pools.connection_from_url(self._host), urlsplit(self._host).path
        else:
            self._opener = self._pools, self._host
        return self._opener

    def _authorization(self) -> dict[str, str]:
        until, header = self._header
        if time.monotonic() < until:
            return header
        # The client's hook re-reads the projected token every minute and sets several attributes: one thread at a time.
        try:
            with self._credentials:
                settings = self._configuration.auth_settings()
        except Exception as error:  # whatever an exec plugin or a token file brings; its text may hold the secret
            raise ApiUnavailable(f"the credentials cannot be read ({type(error).__name__})") from None
        header = {item["key"]: item["value"] for item in settings.values() if item["in"] == "header" and item["value"]}
        self._header = time.monotonic() + CREDENTIALS_KEPT, header
        return header

    def _forget_credentials(self) -> None:
        self._header = float("-inf"), {}


def get_or_none(api: KubeClient, path: str, *, timeout: tuple[float, float] = TIMEOUT) -> bytes | None:
    """Get one object; None if it does not exist. Raises as `KubeClient.request` does for all other faults."""
    try:
        return api.request("GET", path, timeout=timeout)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise


def connect(*, kubeconfig: str | None = None, context: str | None = None, user_agent: str) -> KubeClient:
    """Connect with a kubeconfig file, else with `$KUBECONFIG`, the pod's service account, or `~/.kube/config`.

    `context` names a context of the kubeconfig; None: the current one, as kubectl finds it in several files. Acts as
    the user that the kubeconfig impersonates, if it does. Sends nothing yet. Raises ApiUnavailable when none of them
    can be read.
    """
    # Half a second of imports that no pure part of the engine should pay.
    from kubernetes import config
    from kubernetes.client import ApiClient, Configuration

    settings = Configuration()
    impersonation: Headers = ()
    try:
        if kubeconfig is None and context is None and in_cluster():
            config.load_incluster_config(client_configuration=settings)
        else:
            files = kubeconfig or os.environ.get("KUBECONFIG")
            merged = merged_kubeconfigs(files)
            context = context or current_context(merged)
            config.load_kube_config(config_file=files, context=context, client_configuration=settings)
            impersonation = headers_of_kubeconfig(merged.config, context)
    except ImpersonationProblem as problem:
        raise ApiUnavailable(f"the user in {kubeconfig or 'the kubeconfig'}: {problem}") from None
    except Exception as error:  # the loader raises whatever YAML, base64 and the file system raise
        where = kubeconfig or "the default kubeconfig"
        raise ApiUnavailable(f"no API server configured: {where} cannot be used ({why_unusable(error)})") from None
    settings.connection_pool_maxsize = POOL_SIZE
    return KubeClient(ApiClient(settings), user_agent, impersonation=impersonation)


def in_cluster() -> bool:
    """Return True where the pod's service account is used unless a kubeconfig is given."""
    return not os.environ.get("KUBECONFIG") and bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def object_path(
    api_version: str,
    plural: str,
    *,
    namespace: str | None = None,
    name: str | None = None,
    subresource: str | None = None,
) -> str:
    """Build the URL path of a collection, an object or a subresource (`apps/v1`, `deployments`, ...), names quoted."""
    parts = ["api" if "/" not in api_version else "apis", *api_version.split("/")]
    if namespace is not None:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(plural)
    if name is not None:
        parts.append(quote(name, safe=""))
    if subresource is not None:
        parts.append(subresource)
    return "/" + "/".join(parts)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    # The API server sends whole seconds; a date (from a proxy) is as good as none.
    value = headers.get("Retry-After", "")[:9]
    return float(value) if value.isascii() and value.isdigit() else None


def _describe(error: BaseException) -> str:
    # Only the operating system's own words: messages of the libraries may quote what was sent.
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror
        nested = [part for part in inner.args if isinstance(part, BaseException)]
        inner = nested[-1] if nested else inner.__cause__ or inner.__context__
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "no answer within the time limit"
    return type(error).__name__
