"""The CA's Secret: made once, read by all, never overwritten."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from certs.authority import Authority, new_authority
from certs.rotation import StoredAuthority
from certs.secret import SecretUnusable, ensure_ca, read_kept, write

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
        if method == "PATCH":
            assert (path, content_type) == (f"{PATH}/topogate-ca", "application/merge-patch+json")
            assert isinstance(body, Mapping)
            if self.secret is None:
                raise Refused(404)
            if body["metadata"]["resourceVersion"] != self.secret["metadata"].get("resourceVersion"):
                raise Refused(409)
            self.secret = merged(self.secret, body)
            self.secret["metadata"]["resourceVersion"] += "+"
            return json.dumps(self.secret).encode()
        assert (method, path) == ("POST", PATH)
        if self.race is not None:
            self.secret, self.race = self.race, None
        if self.secret is not None:
            raise Refused(409)
        assert isinstance(body, Mapping)
        self.secret = dict(body)
        return json.dumps(self.secret).encode()


def merged(before: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, Mapping):
        return patch
    kept = dict(before) if isinstance(before, Mapping) else {}
    for key, value in patch.items():
        kept[key] = merged(kept.get(key), value)
    return {key: value for key, value in kept.items() if value is not None}


def ensure(cluster: Cluster, now: float = NOW, **options: Any) -> Authority:
    return ensure_ca(cluster, namespace="ns", name="topogate-ca", now=now, **options).authority


def read(cluster: Cluster, now: float = NOW) -> StoredAuthority:
    return read_kept(json.dumps(cluster.secret).encode(), namespace="ns", name="topogate-ca", now=now)


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
        "annotations": {},
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


def test_an_expired_authority_is_replaced_by_one_replica() -> None:
    """A service that was away for ten years: nobody trusts that CA any more, so nobody is harmed by another one."""
    content = secret(**GOOD)
    content["metadata"] |= {"resourceVersion": "7", "labels": {"theirs": "stays"}}
    cluster, late = Cluster(content), NOW + 4000 * 86_400
    first = ensure(cluster, now=late)
    assert first.not_after > late
    assert ensure(cluster, now=late) == first
    assert cluster.calls == ["GET", "PATCH", "GET"]
    assert cluster.secret["metadata"]["labels"] == {"theirs": "stays"}


def test_a_ca_is_not_made_where_another_one_is_in_use() -> None:
    """The Secret was deleted and somebody leads: he knows the CA that everybody trusts, and puts it back."""
    cluster = Cluster()
    with pytest.raises(SecretUnusable, match="the leader restores it"):
        ensure(cluster, may_make=lambda: False)
    assert cluster.calls == ["GET"]


def test_what_is_written_is_read_again() -> None:
    """All of a renewal under way is in the Secret: two CAs, both keys, the time, and what is asked."""
    old, new = new_authority(now=NOW, name="old"), new_authority(now=NOW, name="new")
    both = replace(old, certificates=(old.signer, new.signer))
    cluster = Cluster()
    kept = StoredAuthority(both, new, since=NOW - 5, renew_asked=True, drop_asked=True)
    write(cluster, kept, namespace="ns", name="topogate-ca", version="")
    assert set(cluster.secret["data"]) == {"ca.crt", "ca.key", "next.key"}
    assert read(cluster) == kept
    cluster.secret["metadata"]["resourceVersion"] = "7"
    after = StoredAuthority(replace(new, certificates=both.certificates), since=NOW)
    write(cluster, after, namespace="ns", name="topogate-ca", version="7")
    assert read(cluster) == after
    assert set(cluster.secret["data"]) == {"ca.crt", "ca.key"}
    with pytest.raises(Refused):
        write(cluster, kept, namespace="ns", name="topogate-ca", version="7")


@pytest.mark.parametrize("key", ["Zm9v", "%", GOOD["ca.key"], 7])
def test_a_next_key_of_no_use_is_as_good_as_none(key: object) -> None:
    """The CA that signs is what counts; another one is announced when it is time."""
    cluster = Cluster(secret(**GOOD, **{"next.key": key}))
    assert read(cluster).following is None


@pytest.mark.parametrize("since", ["", "yesterday", "-1", "9" * 20, "1.5", "²"])
def test_a_time_that_is_none_is_left_out(since: str) -> None:
    """Annotations are anybody's to write who may write the Secret."""
    content = secret(**GOOD)
    content["metadata"]["annotations"] = {"topogate.dev/ca-signs-since": since, "topogate.dev/renew-ca": ""}
    kept = read(Cluster(content))
    assert (kept.since, kept.renew_asked, kept.drop_asked) == (None, True, False)


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
