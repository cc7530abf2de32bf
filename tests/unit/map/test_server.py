"""The server of the live map: for its caller alone, and for nothing but GET."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from tests.support.eventually import eventually
from tests.support.simulation import grid
from tests.support.snapshots import snapshot
from webhook.map.frame import map_frame
from webhook.map.history import History
from webhook.map.server import MOST_CONNECTIONS, MapServer


@pytest.fixture
def history() -> History:
    found = History()
    found.add(map_frame(snapshot(grid(1, 1, 2))))
    return found


@pytest.fixture
def server(history: History) -> Iterator[MapServer]:
    found = MapServer(history)
    found.start()
    yield found
    found.close()


def ask(
    server: MapServer, path: str, *, method: str = "GET", host: str | None = None, token: str | None = None
) -> http.client.HTTPResponse:
    """Ask for a path below the address; the answer has been read, its content is in `content`."""
    parts = urlsplit(server.address)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=30)
    try:
        own = parts.path if token is None else token
        connection.request(method, own + path, headers={"Host": host or parts.netloc})
        answer = connection.getresponse()
        answer.content = answer.read()  # type: ignore[attr-defined]
        return answer
    finally:
        connection.close()


def content(answer: http.client.HTTPResponse) -> bytes:
    found: bytes = answer.content  # type: ignore[attr-defined]
    return found


def test_the_page_and_its_frames(server: MapServer, history: History) -> None:
    page = ask(server, "")
    assert page.status == 200
    assert b'id="frame">null</script>' in content(page)
    history.problem = "the API server cannot be asked"
    listed = json.loads(content(ask(server, "frames")))
    assert [one["id"] for one in listed["frames"]] == [1]
    assert listed["problem"] == "the API server cannot be asked"
    one = ask(server, "frames/1")
    assert one.getheader("Content-Encoding") == "gzip"
    assert len(json.loads(gzip.decompress(content(one)))["topologies"][0]["nodes"]) == 2


def test_every_answer_is_guarded(server: MapServer) -> None:
    for path in ("", "frames", "frames/1", "nothing"):
        headers = ask(server, path).headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Access-Control-Allow-Origin"] is None


def test_nobody_gets_in_without_the_random_path(server: MapServer) -> None:
    token = urlsplit(server.address).path
    for wrong in (
        "/",
        "",
        "//",
        token[:-2] + "/",
        token.lower().swapcase(),
    ):
        assert ask(server, "frames", token=wrong or "/").status == 404
    assert ask(server, "", token=token.rstrip("/")).status == 404


@pytest.mark.parametrize(
    "path",
    ["frames/0", "frames/2", "frames/1/", "frames/x", "frames/-1", "frames/" + "9" * 99, "../", "%2e%2e/", "frames?x"],
)
def test_what_is_not_there(server: MapServer, path: str) -> None:
    assert ask(server, path).status == 404


def test_another_name_is_refused(server: MapServer) -> None:
    """A page of another site that has its name point to 127.0.0.1 sends its own name (DNS rebinding)."""
    port = urlsplit(server.address).port
    assert ask(server, "frames", host=f"localhost:{port}").status == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port}.evil.example"):
        assert ask(server, "frames", host=host).status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT"])
def test_nothing_but_get(server: MapServer, method: str) -> None:
    assert ask(server, "frames", method=method).status == 501


def test_it_listens_on_this_machine_alone(server: MapServer) -> None:
    assert server.address.startswith("http://127.0.0.1:")
    assert len(urlsplit(server.address).path) > 30


def test_too_many_connections_are_closed_and_it_answers_again(server: MapServer) -> None:
    port = urlsplit(server.address).port
    with ExitStack() as silent:
        held = [
            silent.enter_context(socket.create_connection(("127.0.0.1", port), 30)) for _ in range(MOST_CONNECTIONS)
        ]
        more = silent.enter_context(socket.create_connection(("127.0.0.1", port), 30))
        assert more.recv(1) == b""
        assert len(held) == MOST_CONNECTIONS
    eventually(lambda: _answers(server), message="places are free again")


def _answers(server: MapServer) -> bool:
    try:
        return ask(server, "frames").status == 200
    except OSError:
        return False


def test_it_ends_and_gives_the_port_back(history: History) -> None:
    server = MapServer(history)
    port = urlsplit(server.address).port
    assert port is not None
    server.start()
    with pytest.raises(OSError, match="in use"):
        MapServer(history, port=port)
    server.close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 5)
