from __future__ import annotations

import datetime
import ipaddress
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from engine.cluster import client as api_module
from engine.cluster.client import (
    MERGE_PATCH,
    ApiError,
    ApiFault,
    ApiUnavailable,
    KubeClient,
    connect,
    get_or_none,
    object_path,
    status_error,
)
from tests.support.eventually import PROMPT
from tests.support.fake_api import Answer, FakeApi, Hang, Lines, Reset, Split, Stall

MAPS = "/api/v1/namespaces/default/configmaps"
WATCH = {"watch": "1", "resourceVersion": "0"}
Kubeconfig = Callable[..., str]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A self-signed certificate for 127.0.0.1: (certificate file, key file)."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(folder / "tls.crt"), str(folder / "tls.key")


def server_context(certificate: tuple[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


def test_bytes_go_out_as_given_and_mappings_as_json(fake: FakeApi, api: KubeClient) -> None:
    """A body of bytes is sent unchanged, a mapping as JSON, each with the content type asked for."""
    api.request("POST", MAPS, body={"metadata": {"name": "a"}, "data": {"x": "é"}})
    api.request(
        "PATCH", MAPS + "/a", body=b'{"data": {"y":"1"}}', content_type=MERGE_PATCH, query={"fieldManager": "me"}
    )
    post, patch = fake.requests
    assert post.body == '{"metadata":{"name":"a"},"data":{"x":"é"}}'.encode()
    assert post.headers["content-type"] == "application/json"
    assert patch.body == b'{"data": {"y":"1"}}'
    assert patch.headers["content-type"] == MERGE_PATCH
    assert patch.query == {"fieldManager": "me"}
    assert patch.headers["user-agent"] == "topogate-test"


def test_a_refusal_carries_status_reason_and_causes(fake: FakeApi, api: KubeClient) -> None:
    """A Status answer becomes an ApiError with its reason, message, causes and Retry-After."""
    body = {
        "kind": "Status",
        "reason": "Invalid",
        "message": "no",
        "details": {"causes": [{"field": "spec.x", "message": "bad"}, {"field": "spec", "message": "worse"}]},
    }
    fake.fault(Answer(422, body, (("Retry-After", "7"),)))
    with pytest.raises(ApiError) as caught:
        api.request("GET", MAPS)
    error = caught.value
    assert (error.status, error.reason, error.message) == (422, "Invalid", "no")
    assert error.causes == (("spec.x", "bad"), ("spec", "worse"))
    assert error.retry_after == 7.0


@pytest.mark.parametrize(
    "body", [b"", b"<html>upstream is tired</html>", b"[]", b'{"message": 7}', b"\xff\xfe", b"null"]
)
def test_a_refusal_without_a_status_is_still_an_error(fake: FakeApi, api: KubeClient, body: bytes) -> None:
    """A proxy's answer that is no Status object gives an ApiError with the HTTP status and nothing of the body."""
    fake.fault(Answer(502, body))
    with pytest.raises(ApiError) as caught:
        api.request("GET", MAPS)
    assert caught.value.status == 502
    assert "tired" not in str(caught.value)


@pytest.mark.parametrize("value", ["-1", "soon", "Wed, 21 Oct 2026 07:28:00 GMT", "²", ""])
def test_a_retry_after_that_is_no_number_of_seconds_is_ignored(fake: FakeApi, api: KubeClient, value: str) -> None:
    """Only whole seconds count as Retry-After."""
    fake.fault(Answer(429, {}, (("Retry-After", value.encode().decode("latin-1")),)))
    with pytest.raises(ApiError) as caught:
        api.request("GET", MAPS)
    assert caught.value.retry_after is None


def test_the_object_of_an_error_event_is_read_like_an_answer() -> None:
    """An ERROR event's Status gives status code and Retry-After from the body."""
    error = status_error(b'{"code":429,"reason":"TooManyRequests","details":{"retryAfterSeconds":3}}')
    assert (error.status, error.retry_after) == (429, 3.0)


def test_an_object_that_does_not_exist_is_none(fake: FakeApi, api: KubeClient) -> None:
    """Only a 404 says so; every other refusal is raised."""
    path = "/api/v1/namespaces/a/configmaps/b"
    assert get_or_none(api, path) is None
    fake.fault(Answer(403, {"kind": "Status", "reason": "Forbidden", "message": "no"}))
    with pytest.raises(ApiError):
        get_or_none(api, path)
    fake.put(path, data={"x": "1"})
    assert b'"x"' in (get_or_none(api, path) or b"")


def test_a_redirect_is_an_error(fake: FakeApi, api: KubeClient) -> None:
    """Redirects are not followed: they would carry the token elsewhere."""
    fake.fault(Answer(307, {}, (("Location", fake.url + "/api/v1/nodes"),)))
    with pytest.raises(ApiError) as caught:
        api.request("GET", MAPS)
    assert caught.value.status == 307
    assert len(fake.requests) == 1


def test_nobody_listening_is_unavailable(kubeconfig: Kubeconfig) -> None:
    """A refused connection is ApiUnavailable and says so."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        api = connect(kubeconfig=kubeconfig(f"http://127.0.0.1:{unused.getsockname()[1]}"), user_agent="t")
        with pytest.raises(ApiUnavailable, match="Connection refused"):
            api.request("GET", MAPS)


def test_silence_is_unavailable_after_the_time_limit(fake: FakeApi, api: KubeClient) -> None:
    """A server that takes the request and says nothing costs the read time limit, once."""
    never = threading.Event()
    fake.fault(Stall(never))
    with pytest.raises(ApiUnavailable, match="time limit"):
        api.request("GET", MAPS, timeout=(1, 0.2))
    assert len(fake.requests) == 1
    never.set()


def test_a_lost_answer_repeats_a_read_but_never_a_write(fake: FakeApi, api: KubeClient) -> None:
    """A connection that breaks before the answer: GET is sent once more, a POST is reported (it may have been done)."""
    fake.fault(Hang())
    assert b'"items"' in api.request("GET", MAPS)
    fake.fault(Hang())
    with pytest.raises(ApiUnavailable):
        api.request("POST", MAPS, body={"metadata": {"name": "a"}})
    assert fake.count("POST") == 1
    assert fake.get(MAPS + "/a") is not None


def test_an_answer_above_the_limit_is_refused(fake: FakeApi, api: KubeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is never read beyond the bound."""
    monkeypatch.setattr(api_module, "MAX_RESPONSE", 1000)
    fake.fault(Answer(200, b"x" * 1001))
    with pytest.raises(ApiUnavailable, match="more than 1000 bytes"):
        api.request("GET", MAPS)
    fake.fault(Answer(200, b"x" * 101))
    with pytest.raises(ApiUnavailable, match="more than 100 bytes"):
        api.request("GET", MAPS, most=100)
    fake.fault(Answer(200, b"x" * 100))
    assert api.request("GET", MAPS, most=100) == b"x" * 100


def test_connections_are_kept_and_shared(fake: FakeApi, api: KubeClient) -> None:
    """Sixteen writers work at once over connections that are kept open."""
    errors: list[Exception] = []

    def write(worker: int) -> None:
        try:
            for number in range(5):
                api.request("POST", MAPS, body={"metadata": {"name": f"m{worker}-{number}"}})
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert fake.count("POST") == 80
    assert len(fake._sockets) <= 16


def test_lines_survive_any_chunking(fake: FakeApi, api: KubeClient) -> None:
    """A watch line with multi-byte characters arrives whole when every byte is a chunk of its own."""
    fake.put(MAPS + "/a", data={"x": "é漢🚀"})
    fake.fault(Split(1))
    with api.stream(MAPS, WATCH) as stream:
        line = next(iter(stream))
    assert "é漢🚀".encode() in line


def test_many_lines_in_one_chunk_and_empty_lines_are_told_apart(fake: FakeApi, api: KubeClient) -> None:
    """Lines are split at newlines only, and empty ones are skipped."""
    fake.fault(Lines((b'{"a":1}\n{"b":2}\n\n{"c":"\xe2\x80\xa8"}',)))
    with api.stream(MAPS, WATCH) as stream:
        assert list(stream) == [b'{"a":1}', b'{"b":2}', b'{"c":"\xe2\x80\xa8"}']


def test_a_reset_in_the_middle_of_a_line_drops_the_half(fake: FakeApi, api: KubeClient) -> None:
    """A TCP reset is ApiUnavailable; the half line before it is never delivered."""
    fake.put(MAPS + "/a", data={"x": "1"})
    fake.put(MAPS + "/b", data={"x": "1"})
    fake.fault(Reset(events=1))
    lines: list[bytes] = []
    with api.stream(MAPS, WATCH) as stream, pytest.raises(ApiUnavailable):
        lines.extend(stream)
    assert len(lines) == 1


def test_a_line_above_the_limit_ends_the_stream(
    fake: FakeApi, api: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line is never collected beyond the bound."""
    monkeypatch.setattr(api_module, "MAX_LINE", 1000)
    fake.fault(Lines((b"x" * 1001,)))
    with api.stream(MAPS, WATCH) as stream, pytest.raises(ApiUnavailable, match="more than 1000 bytes"):
        list(stream)


def test_a_silent_stream_is_unavailable(fake: FakeApi, api: KubeClient) -> None:
    """A watch on which nothing arrives for the read time limit is given up."""
    with api.stream(MAPS, WATCH, read_timeout=0.2) as stream, pytest.raises(ApiUnavailable, match="time limit"):
        list(stream)


def test_a_refused_watch_raises_at_once(fake: FakeApi, api: KubeClient) -> None:
    """A watch that is answered with an error raises the ApiError of its Status."""
    fake.missing.add("/api/v1/configmaps")
    with pytest.raises(ApiError) as caught:
        api.stream(MAPS, WATCH)
    assert caught.value.status == 404


@pytest.mark.parametrize("tls", [False, True])
def test_close_from_another_thread_ends_a_blocked_read(
    certificate: tuple[str, str], kubeconfig: Kubeconfig, tls: bool
) -> None:
    """`close` wakes a reader that is blocked in a quiet watch at once, also under TLS."""
    with FakeApi(tls=server_context(certificate) if tls else None) as fake:
        api = connect(kubeconfig=kubeconfig(fake.url, ca=certificate[0]), user_agent="t")
        fake.put(MAPS + "/a", data={})
        first = threading.Event()
        ended = threading.Event()

        def read() -> None:
            with stream:
                for _ in stream:
                    first.set()
            ended.set()

        stream = api.stream(MAPS, WATCH)
        threading.Thread(target=read, daemon=True).start()
        assert first.wait(60)
        started = time.monotonic()
        stream.close()
        assert ended.wait(60)
        assert time.monotonic() - started < PROMPT
        stream.close()


def test_an_unknown_certificate_is_unavailable(certificate: tuple[str, str], kubeconfig: Kubeconfig) -> None:
    """The server's certificate is verified."""
    with FakeApi(tls=server_context(certificate)) as fake:
        api = connect(kubeconfig=kubeconfig(fake.url), user_agent="t")
        with pytest.raises(ApiUnavailable):
            api.request("GET", MAPS)
        assert fake.requests == []


def test_in_a_pod_the_mounted_token_is_used_and_read_again(
    certificate: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service account's token file is followed when the kubelet rotates it."""
    from kubernetes.config import incluster_config

    token = tmp_path / "token"
    token.write_text("first")
    with FakeApi(token="first", tls=server_context(certificate)) as fake:
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", certificate[0])
        monkeypatch.delenv("KUBECONFIG", raising=False)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", fake.url.rpartition(":")[2])
        api = connect(user_agent="t")
        api.request("GET", MAPS)
        token.write_text("second")
        fake.token = "second"
        with pytest.raises(ApiError, match="401"):
            api.request("GET", MAPS)
        # The client looks at the file once a minute.
        monkeypatch.setattr(incluster_config, "datetime", _Later)
        api.request("GET", MAPS)


def test_credentials_are_kept_for_a_second_unless_a_request_fails(
    kubeconfig: Kubeconfig, fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burst of requests does not ask for credentials each time; after a refusal or a fault the next one does."""
    api = connect(kubeconfig=kubeconfig(fake.url, token="t"), user_agent="t")
    clock = _Clock(monkeypatch)
    asked: list[str] = []
    settings = api._configuration.auth_settings
    monkeypatch.setattr(api._configuration, "auth_settings", lambda: asked.append("") or settings())
    for _ in range(3):
        api.request("GET", MAPS)
    assert len(asked) == 1
    clock.now += api_module.CREDENTIALS_KEPT
    api.request("GET", MAPS)
    assert len(asked) == 2
    for faults, times in ((Answer(401), 1), (Hang(), 2)):
        before = len(asked)
        fake.fault(faults, times=times)
        with pytest.raises(ApiFault):
            api.request("GET", MAPS)
        api.request("GET", MAPS)
        assert len(asked) == before + 1
    before = len(asked)
    fake.fault(Answer(401))
    with pytest.raises(ApiError), api.stream(MAPS, WATCH):
        pass
    api.request("GET", MAPS)
    assert len(asked) == before + 1


class _Clock:
    """The monotonic clock of the client, turned by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(api_module, "time", self)

    def monotonic(self) -> float:
        return self.now


def test_a_server_below_a_path_gets_that_path(kubeconfig: Kubeconfig, fake: FakeApi) -> None:
    """Some management systems serve many clusters below paths of one host."""
    api = connect(kubeconfig=kubeconfig(f"{fake.url}/clusters/one/"), user_agent="t")
    with pytest.raises(ApiError):
        api.request("GET", MAPS)
    assert fake.requests[-1].path == f"/clusters/one{MAPS}"


def test_a_proxy_gets_the_whole_url(kubeconfig: Kubeconfig, fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy is asked for the server's URL; for a server without TLS it forwards each request."""
    monkeypatch.setenv("http_proxy", fake.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    api = connect(kubeconfig=kubeconfig("http://api.example:8080"), user_agent="t")
    api.request("GET", MAPS)
    assert fake.requests[-1].headers["host"] == "api.example:8080"


def impersonated(fake: FakeApi) -> list[list[tuple[str, str]]]:
    """The headers of each request that name whom it acts as."""
    return [[line for line in one.lines if line[0].startswith("Impersonate-")] for one in fake.requests]


@pytest.mark.parametrize("tls", [False, True])
def test_each_request_acts_as_the_user_that_is_impersonated(
    certificate: tuple[str, str], kubeconfig: Kubeconfig, tls: bool
) -> None:
    """Reads, writes and watches, with a line for each group and each value, as client-go sends them."""
    user = {"as": "Zoë", "as-uid": "4711", "as-groups": ["dev", "on call, nights"]}
    user["as-user-extra"] = {"example.com/scopes": ["a", "b"]}
    with FakeApi(tls=server_context(certificate) if tls else None) as fake:
        path = kubeconfig(fake.url, ca=certificate[0] if tls else None, token="t", **user)
        api = connect(kubeconfig=path, user_agent="t")
        api.request("GET", MAPS)
        api.request("POST", MAPS, body={"metadata": {"name": "a"}})
        with api.stream(MAPS, WATCH):
            pass
        sent = [
            ("Impersonate-User", "Zoë".encode().decode("latin-1")),
            ("Impersonate-Uid", "4711"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Group", "on call, nights"),
            ("Impersonate-Extra-example.com%2Fscopes", "a"),
            ("Impersonate-Extra-example.com%2Fscopes", "b"),
        ]
        assert impersonated(fake) == [sent, sent, sent]
        assert [one.headers["authorization"] for one in fake.requests] == ["Bearer t"] * 3


def test_several_groups_through_a_proxy_that_joins_them_are_refused(
    kubeconfig: Kubeconfig, fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two groups would arrive as one; a single one is sent."""
    monkeypatch.setenv("http_proxy", fake.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    several = kubeconfig("http://api.example:8080", **{"as": "alice", "as-groups": ["dev", "ops"]})
    with pytest.raises(ApiUnavailable, match="several groups cannot be impersonated through a proxy without TLS"):
        connect(kubeconfig=several, user_agent="t")
    one = kubeconfig("http://api.example:8080", **{"as": "alice", "as-groups": ["dev"]})
    connect(kubeconfig=one, user_agent="t").request("GET", MAPS)
    assert impersonated(fake) == [[("Impersonate-User", "alice"), ("Impersonate-Group", "dev")]]


class _LaterClock(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _LaterClock:
        return cls.fromtimestamp(time.time() + 120, tz)


class _Later:
    timedelta = datetime.timedelta
    datetime = _LaterClock


def test_a_token_is_never_in_an_error(kubeconfig: Kubeconfig, fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a refusal nor a credential plug-in that fails shows a secret."""
    secret = "very-secret-token"
    api = connect(kubeconfig=kubeconfig(fake.url, token=secret), user_agent="t")
    fake.fault(Hang(), times=2)
    with pytest.raises(ApiUnavailable) as caught:
        api.request("GET", MAPS)
    assert secret not in repr(caught.value)

    def broken(_: object) -> None:
        raise RuntimeError(secret)

    monkeypatch.setattr(api._configuration, "refresh_api_key_hook", broken)
    with pytest.raises(ApiUnavailable, match="RuntimeError") as caught:
        api.request("GET", MAPS)
    assert secret not in repr(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("text", ["", "][", "{}", "clusters: 7"])
def test_a_broken_kubeconfig_is_a_clear_error(tmp_path: Path, text: str) -> None:
    """A kubeconfig that cannot be used names the file."""
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ApiUnavailable, match="config"):
        connect(kubeconfig=str(path), user_agent="t")


def test_a_missing_kubeconfig_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubeconfig that is not there names the file."""
    monkeypatch.setitem(os.environ, "KUBERNETES_SERVICE_HOST", "127.0.0.1")
    with pytest.raises(ApiUnavailable, match="nowhere"):
        connect(kubeconfig=str(tmp_path / "nowhere"), user_agent="t")


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"api_version": "v1", "plural": "nodes"}, "/api/v1/nodes"),
        (
            {"api_version": "batch/v1", "plural": "jobs", "namespace": "a", "name": "b", "subresource": "status"},
            "/apis/batch/v1/namespaces/a/jobs/b/status",
        ),
        (
            {"api_version": "v1", "plural": "pods", "namespace": "a", "name": "../x?y"},
            "/api/v1/namespaces/a/pods/..%2Fx%3Fy",
        ),
    ],
)
def test_paths_are_built_with_quoted_names(arguments: dict[str, str], path: str) -> None:
    """A name can never reach into another path."""
    assert object_path(arguments.pop("api_version"), arguments.pop("plural"), **arguments) == path
