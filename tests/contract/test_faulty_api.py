"""The proxy before the API server in tests of faults does what it says, and nothing while it is calm."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import urllib3

from tests.support.fake_api import FakeApi
from tests.support.faulty_api import REASONS, FaultyApi

MAP = "/api/v1/namespaces/ns/configmaps/one"
WATCH = "/api/v1/namespaces/ns/configmaps?watch=1&resourceVersion=0"


@pytest.fixture
def pool() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False) as made:
        yield made


def proxy(fake: FakeApi, *, always: str = "") -> FaultyApi:
    """A proxy that is not calm; every request that can meets the fault."""
    made = FaultyApi(fake.url, None, seed=1, often={always: 1.0} if always else {})
    made.calm = not always
    return made


def change(pool: urllib3.PoolManager, api: FaultyApi) -> urllib3.BaseHTTPResponse:
    body, headers = json.dumps({"data": {"a": "2"}}).encode(), {"Content-Type": "application/merge-patch+json"}
    return pool.request("PATCH", api.url + MAP, body=body, headers=headers)


def test_a_calm_proxy_passes_everything_on(fake: FakeApi, pool: urllib3.PoolManager) -> None:
    """Reads, writes, refusals, and the lines of a watch as they come."""
    fake.put(MAP, data={"a": "1"})
    with proxy(fake) as api:
        assert pool.request("GET", api.url + MAP).json()["data"] == {"a": "1"}
        assert pool.request("GET", f"{api.url}{MAP}-not").status == 404
        assert change(pool, api).json()["data"] == {"a": "2"}
        watch = pool.request("GET", api.url + WATCH, preload_content=False, timeout=10.0)
        fake.put(MAP, data={"a": "3"})
        line = b""
        while b'"3"' not in line:
            line += watch.read(1)
        watch.close()
        assert api.drawn == {}


@pytest.mark.parametrize("fault", ["429", "500", "409"])
def test_a_write_is_refused_and_not_carried_out(fault: str, fake: FakeApi, pool: urllib3.PoolManager) -> None:
    """In the API server's words; a 429 says when to come again."""
    fake.put(MAP, data={"a": "1"})
    with proxy(fake, always=fault) as api:
        answer = change(pool, api)
        assert (answer.status, answer.json()["reason"]) == (int(fault), REASONS[fault])
        assert ("Retry-After" in answer.headers) == (fault == "429")
        api.calm = True
        assert pool.request("GET", api.url + MAP).json()["data"] == {"a": "1"}


def test_the_answer_to_a_write_is_lost(fake: FakeApi, pool: urllib3.PoolManager) -> None:
    """It was carried out, and nobody says so."""
    fake.put(MAP, data={"a": "1"})
    with proxy(fake, always="lost") as api:
        with pytest.raises(urllib3.exceptions.HTTPError):
            change(pool, api)
        assert pool.request("GET", api.url + MAP).json()["data"] == {"a": "2"}


def test_a_watch_ends_in_the_middle_of_a_line(fake: FakeApi, pool: urllib3.PoolManager) -> None:
    """After seconds at most; what came before is whole."""
    fake.put(MAP, data={"a": "1"})
    with proxy(fake, always="cut") as api:
        watch = pool.request("GET", api.url + WATCH, preload_content=False, timeout=30.0)
        seen, number = b"", 0
        fake.put(MAP, data={"a": "0"})
        with pytest.raises(urllib3.exceptions.HTTPError):
            for part in watch.read_chunked():
                seen += part
                fake.put(MAP, data={"a": str(number := number + 1)})
        assert not seen.endswith(b"\n")
        assert [json.loads(line)["type"] for line in seen.splitlines()[:-1]]
