"""Whom the user of a kubeconfig acts as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.cluster.client import ApiUnavailable, connect
from engine.cluster.impersonation import ImpersonationProblem, headers_of, headers_of_kubeconfig
from engine.cluster.kubeconfig import merged_kubeconfigs


@pytest.mark.parametrize(
    ("user", "headers"),
    [
        ({}, []),
        ({"token": "t", "as": None, "as-groups": None, "as-user-extra": None}, []),
        ({"as": "", "as-uid": "", "as-groups": [], "as-user-extra": {}}, []),
        ({"as": "alice"}, [("Impersonate-User", "alice")]),
        ({"as": "alice", "as-user-extra": {"a": None, "b": []}}, [("Impersonate-User", "alice")]),
        (
            {"as": "alice", "as-user-extra": {"Scopes/x%~'é": ["1"]}},
            [("Impersonate-User", "alice"), ("Impersonate-Extra-Scopes%2Fx%25~'%C3%A9", "1")],
        ),
    ],
)
def test_the_headers_are_those_of_client_go(user: dict[str, Any], headers: list[tuple[str, str]]) -> None:
    """Its headerKeyEscape keeps what may be in a header's name, but for the percent sign."""
    assert list(headers_of(user)) == headers


@pytest.mark.parametrize(
    ("user", "problem"),
    [
        ({"as-groups": ["dev"]}, "need a user to impersonate"),
        ({"as-uid": "1"}, "need a user to impersonate"),
        ({"as-user-extra": {"a": ["b"]}}, "need a user to impersonate"),
        ({"as": 7}, "as has to be a text"),
        ({"as": "alice", "as-uid": 7}, "as-uid has to be a text"),
        ({"as": "alice", "as-groups": "dev"}, "as-groups has to be a list of texts"),
        ({"as": "alice", "as-groups": [7]}, "as-groups has to be a list of texts"),
        ({"as": "alice", "as-user-extra": ["a"]}, "as-user-extra has to map names to lists"),
        ({"as": "alice", "as-user-extra": {7: ["a"]}}, "as-user-extra has to map names to lists"),
        ({"as": "alice", "as-user-extra": {"a": "b"}}, "as-user-extra has to be a list of texts"),
        ({"as": "alice\r\nX-Remote-User: root"}, "control character"),
    ],
)
def test_what_kubectl_refuses_is_refused(user: dict[str, Any], problem: str) -> None:
    """A field that was left out would give more rights than are meant."""
    with pytest.raises(ImpersonationProblem, match=problem):
        headers_of(user)


def written(path: Path, *, context: str, user: dict[str, Any]) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example"}}],
        "users": [{"name": context, "user": user}],
        "contexts": [{"name": context, "context": {"cluster": "c", "user": context}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


def test_the_user_is_that_of_the_context(tmp_path: Path) -> None:
    """In one of several files, as $KUBECONFIG may name them; a context may have no user."""
    first = written(tmp_path / "a", context="alices", user={"as": "alice"})
    second = written(tmp_path / "b", context="bobs", user={"as": "bob"})
    assert headers_of_kubeconfig(merged_kubeconfigs(f"{first}:{second}").config, "alices") == (
        ("Impersonate-User", "alice"),
    )
    assert headers_of_kubeconfig(merged_kubeconfigs(f"{first}:{second}").config, "bobs") == (
        ("Impersonate-User", "bob"),
    )
    assert headers_of_kubeconfig(merged_kubeconfigs(second).config, None) == (("Impersonate-User", "bob"),)
    nobody = yaml.safe_load(Path(second).read_text()) | {"users": None}
    Path(second).write_text(yaml.safe_dump(nobody))
    assert headers_of_kubeconfig(merged_kubeconfigs(second).config, None) == ()


def test_a_kubeconfig_that_cannot_be_followed_connects_with_nothing(tmp_path: Path) -> None:
    """The error names the file and the field."""
    path = written(tmp_path / "a", context="mine", user={"token": "admin", "as": "alice", "as-groups": "dev"})
    with pytest.raises(ApiUnavailable, match=r"the user in .*/a: as-groups has to be a list of texts"):
        connect(kubeconfig=path, user_agent="t")
