"""The version of the API server: read, compared with the oldest that is supported, and logged at the start."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from engine.cluster.client import ApiUnavailable, KubeClient
from engine.cluster.server_version import keeps_resources, release_of, report_server, server_version, too_old


class Server:
    """Answers `GET /version` with these bytes, or not at all."""

    def __init__(self, answer: bytes | None) -> None:
        self._answer = answer

    def request(self, method: str, path: str, **_options: object) -> bytes:
        assert (method, path) == ("GET", "/version")
        if self._answer is None:
            raise ApiUnavailable("connection refused")
        return self._answer


def server(answer: bytes | None) -> KubeClient:
    return cast("KubeClient", Server(answer))


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("v1.30.14", (1, 30)),
        ("v1.36.3-gke.1209000", (1, 36)),
        ("1.33+", (1, 33)),
        ("v2.0.0", (2, 0)),
        ("", None),
        ("main", None),
        ("v1", None),
    ],
)
def test_versions_are_read_as_distributions_write_them(version: str, release: tuple[int, int] | None) -> None:
    """With and without the v, with what a cloud adds."""
    assert release_of(version) == release


def test_a_server_older_than_1_30_is_too_old() -> None:
    """By number, not by letters; what cannot be read is not called old."""
    assert too_old("v1.29.15") == "v1.29.15 is older than 1.30"
    assert too_old("v1.9.0") == "v1.9.0 is older than 1.30"
    assert [too_old(version) for version in ("v1.30.0", "v1.100.0", "v2.1.0", "", "main")] == [""] * 5


def test_resources_of_a_waiting_job_may_change_since_1_36() -> None:
    """MutablePodResourcesForSuspendedJobs is on since then; of an unknown server nothing is claimed."""
    kept = [keeps_resources(version) for version in ("v1.30.14", "v1.35.2", "v1.36.0", "v1.37.2", "")]
    assert kept == [True, True, False, False, False]


@pytest.mark.parametrize("answer", [b"[]", b'{"gitVersion": 7}', b'{"gitVersion": null}', b"{}"])
def test_an_answer_without_a_version_is_none(answer: bytes) -> None:
    assert server_version(server(answer)) == ""


@pytest.mark.parametrize("answer", [b"", b"no json"])
def test_an_answer_that_is_no_json_is_none_of_an_api_server(answer: bytes) -> None:
    """A proxy in front of the API server answers something else."""
    with pytest.raises(ApiUnavailable, match="cannot be read"):
        server_version(server(answer))


@pytest.mark.parametrize(
    ("answer", "level", "said"),
    [
        (b'{"gitVersion": "v1.36.3"}', logging.INFO, "the API server is v1.36.3"),
        (b'{"gitVersion": "v1.29.4"}', logging.ERROR, "the API server is not supported: v1.29.4 is older than 1.30."),
        (b"{}", logging.INFO, "the API server is of an unknown version"),
        (None, logging.WARNING, "the version of the API server is not known: connection refused"),
    ],
)
def test_the_start_says_which_server_it_is(
    answer: bytes | None, level: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One line; a server that is too old is an error, one that does not answer stops nothing."""
    with caplog.at_level(logging.INFO, logger="engine.cluster.server_version"):
        version = report_server(server(answer))
    assert version in (said.rpartition(" ")[2], "v1.29.4" if level == logging.ERROR else "")
    assert [record.levelno for record in caplog.records] == [level]
    assert caplog.records[0].getMessage().startswith(said)
