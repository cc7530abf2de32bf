"""The CA's Secret: made once, read by all, never overwritten."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from certs.authority import Authority, new_authority
from certs.secret import SecretUnusable, ensure_authority

NOW = 1_800_000_000.0
PATH = "/api/v1/namespaces/ns/secrets"


class Refused(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"refused with {status}")
        self.status = status


class Cluster:
    """One Secret; `race` is what another replica creates just before our create arrives."""

    def __init__(self, secret: Any = None, *, race: Any = None) -> None:
        self.secret = secret
        self.race = race
        self.calls: list[str] = []
        self.refusal: int | None = None
        self.vanishing = False

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        self.calls.append(method)
        if self.refusal is not None:
            raise Refused(self.refusal)
        if method == "GET":
            assert path == f"{PATH}/topogate-ca"
            if self.secret is None or self.vanishing:
                raise Refused(404)
            return json.dumps(self.secret).encode()
        assert (method, path) == ("POST", PATH)
        if self.race is not None:
            self.secret, self.race = self.race, None
        if self.secret is not None:
            raise Refused(409)
        assert isinstance(body, Mapping)
        self.secret = dict(body)
        return json.dumps(self.secret).encode()


def ensure(cluster: Cluster, now: float = NOW) -> Authority:
    return ensure_authority(cluster, namespace="ns", name="topogate-ca", now=now)


def secret(**data: Any) -> dict[str, Any]:
    return {"metadata": {"name": "topogate-ca"}, "data": data}


def encoded(authority: Authority) -> dict[str, str]:
    return {
        "ca.crt": base64.b64encode(authority.bundle).decode(),
        "ca.key": base64.b64encode(authority.key).decode(),
    }


def test_the_first_replica_makes_the_secret_and_the_others_read_it() -> None:
    """Two replicas end with the same CA."""
    cluster = Cluster()
    first = ensure(cluster)
    assert cluster.secret["metadata"] == {
        "name": "topogate-ca",
        "namespace": "ns",
        "labels": {"app.kubernetes.io/name": "topogate"},
    }
    assert set(cluster.secret["data"]) == {"ca.crt", "ca.key"}
    assert ensure(cluster) == first
    assert cluster.calls == ["GET", "POST", "GET"]


def test_the_loser_of_a_race_takes_the_winners_authority() -> None:
    """409 AlreadyExists means: read again."""
    winner = new_authority(now=NOW, name="winner")
    cluster = Cluster(race=secret(**encoded(winner)))
    assert ensure(cluster) == winner
    assert cluster.calls == ["GET", "POST", "GET"]


def test_a_secret_with_several_authorities_is_read_whole() -> None:
    """During a rotation all certificates are trusted and the key's own signs."""
    old, new = new_authority(now=NOW, name="old"), new_authority(now=NOW, name="new")
    data = {**encoded(new), "ca.crt": base64.b64encode(old.bundle + new.bundle).decode()}
    found = ensure(Cluster(secret(**data)))
    assert (found.signer, found.bundle) == (new.signer, old.bundle + new.bundle)


GOOD = encoded(new_authority(now=NOW, name="good"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param({"metadata": {}}, "ca.crt is missing", id="no data"),
        pytest.param({"data": None}, "ca.crt is missing", id="null data"),
        pytest.param({"data": []}, "ca.crt is missing", id="empty list"),
        pytest.param({"data": ["x"]}, "malformed", id="data of another type"),
        pytest.param([], "malformed", id="no object"),
        pytest.param(secret(**{"ca.crt": GOOD["ca.crt"]}), "ca.key is missing", id="half written"),
        pytest.param(secret(**{**GOOD, "ca.key": ""}), "ca.key is missing", id="empty key"),
        pytest.param(secret(**{**GOOD, "ca.key": 7}), "ca.key is missing", id="key of another type"),
        pytest.param(secret(**{**GOOD, "ca.crt": "%%%"}), "ca.crt is not base64", id="no base64"),
        pytest.param(secret(**{**GOOD, "ca.crt": "Zm9v"}), "not PEM", id="garbage"),
        pytest.param(secret(**{**GOOD, "ca.key": "ü"}), "ca.key is", id="not ASCII"),
    ],
)
def test_an_unusable_secret_is_reported_and_never_overwritten(content: Any, says: str) -> None:
    """The message names the Secret, the fault and the way out; nothing is written."""
    cluster = Cluster(content)
    with pytest.raises(SecretUnusable, match=says) as caught:
        ensure(cluster)
    assert "Secret ns/topogate-ca" in str(caught.value)
    assert "delete it" in str(caught.value)
    assert "PRIVATE" not in str(caught.value)
    assert cluster.calls == ["GET"]


def test_an_expired_authority_is_reported() -> None:
    """After ten years somebody has to act; the date is named."""
    with pytest.raises(SecretUnusable, match="expired on 20"):
        ensure(Cluster(secret(**GOOD)), now=NOW + 4000 * 86_400)


def test_errors_of_the_api_pass_through() -> None:
    """Forbidden is not "no Secret": nothing is created on top of it."""
    cluster = Cluster()
    cluster.refusal = 403
    with pytest.raises(Refused):
        ensure(cluster)
    assert cluster.calls == ["GET"]


def test_a_secret_that_comes_and_goes_is_not_chased_for_ever() -> None:
    """Something that deletes the Secret as fast as it is made ends in an error, not in a loop."""
    cluster = Cluster(secret(**GOOD))
    cluster.vanishing = True
    with pytest.raises(SecretUnusable, match="comes and goes"):
        ensure(cluster)
    assert len(cluster.calls) == 6
