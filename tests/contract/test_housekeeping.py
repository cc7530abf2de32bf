"""The leader keeps the CA, its bundle and the policy's entries; nobody asks for what a watch tells."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from certs.authority import AuthorityError, new_authority
from certs.rotation import RETIRE
from certs.secret import SecretUnusable
from engine.api import names
from engine.api.objects import ConfigMap
from engine.cache.informers import ForeignInformers
from engine.cache.stores import Stores
from engine.cluster.client import KubeClient
from engine.cluster.events import Recorder
from engine.cluster.lease import NotLeader
from engine.policy.source import PolicySource
from tests.support.certificates import TestAuthority
from tests.support.eventually import PROMPT, eventually
from tests.support.fake_api import Answer, FakeApi
from webhook.service import housekeeping, port_certificate
from webhook.service.ca_rotation import CurrentAuthority, mark
from webhook.service.housekeeping import Housekeeping
from webhook.service.own_objects import CONFIGURATIONS, OwnObjects
from webhook.service.policy_events import PolicyEvents
from webhook.service.port_certificate import PortCertificate
from webhook.service.settings import Settings

NAMESPACE = "topogate-system"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/{names.CA_SECRET_NAME}"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
NOW = 1_800_000_000.0


class Candidate:
    """A replica's part in the election, as a test says it; `looks` counts how often it was asked."""

    def __init__(self) -> None:
        self.leads = True
        self.fenced = False
        self.looks = 0

    @property
    def is_leader(self) -> bool:
        self.looks += 1
        return self.leads

    def check(self) -> None:
        if self.fenced or not self.leads:
            raise NotLeader("not the leader")


class House:
    """One replica's housekeeping, running."""

    def __init__(self, api: KubeClient, fake: FakeApi) -> None:
        self.fake = fake
        self.candidate = Candidate()
        self.wake = threading.Event()
        self.stop = threading.Event()
        self.clock = 0.0
        self.wall = NOW
        self.objects = OwnObjects(api, namespace=NAMESPACE, changed=self.wake.set)
        self.authority = CurrentAuthority(
            api, self.objects, namespace=NAMESPACE, clock=lambda: self.clock, wall=lambda: self.wall
        )
        self.policy = PolicySource(lambda _: self.wake.set())
        self.policy.start(None, None)
        self.objects.start()
        assert self.objects.wait_synced(60)
        settings = Settings(namespace=NAMESPACE, identity="a")
        self.certificate = PortCertificate(
            api, self.objects, settings=settings, authority=self.authority, wall=lambda: self.wall
        )
        self.certificate.obtain(self.stop)
        self.house = Housekeeping(
            api,
            self.candidate,  # type: ignore[arg-type]
            self.policy,
            ForeignInformers(api, Stores()),
            settings=settings,
            objects=self.objects,
            authority=self.authority,
            certificate=self.certificate,
            wake=self.wake,
            events=PolicyEvents(Recorder(api, instance="a"), self.policy, lambda: None),
        )
        self.thread = threading.Thread(target=self.house.keep, args=(self.stop,))
        self.thread.start()

    def end(self) -> None:
        self.stop.set()
        self.wake.set()
        self.thread.join(60)
        self.objects.stop()

    def looked(self, times: int = 3) -> None:
        """Wait until it has looked so often at what is stored now."""
        eventually(self.has_seen_all, message="the watches bring what is stored")
        seen = self.candidate.looks
        eventually(lambda: self.candidate.looks >= seen + times, message="housekeeping looks")

    def secret(self) -> dict[str, Any]:
        found = self.fake.get(SECRET)
        assert found is not None
        return found

    def bundles(self) -> set[str]:
        found = set()
        for resource, name in CONFIGURATIONS:
            configuration = self.fake.get(f"{HOOKS}/{resource}/{name}")
            assert configuration is not None
            found |= {hook["clientConfig"].get("caBundle", "") for hook in configuration.get("webhooks") or []}
        return found

    def published(self) -> bool:
        return self.bundles() == {self.secret()["data"]["ca.crt"]}

    def has_seen_all(self) -> bool:
        """Return True if the replica's watches have brought the Secret and the configurations as they are."""
        stored = {f"{resource}/{name}": f"{HOOKS}/{resource}/{name}" for resource, name in CONFIGURATIONS}
        stored[names.CA_SECRET_NAME] = SECRET
        for key, reflector in self.objects.reflectors().items():
            there = self.fake.get(stored[key])
            seen = reflector.store.get(key.rpartition("/")[2])
            version = None if there is None else there["metadata"]["resourceVersion"]
            if version != (None if seen is None else seen.resource_version):
                return False
        return True

    def settle(self, seconds: float = 30.0) -> None:
        """Let time pass, as far as the CA is concerned."""
        self.looked(2)  # its time counts from the look that finds the CA trusted
        self.clock += seconds
        self.wall += seconds


@pytest.fixture
def house(api: KubeClient, fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    monkeypatch.setattr(housekeeping, "EVERY", 0.05)
    monkeypatch.setattr(housekeeping, "REST", 0.01)
    for resource, name in CONFIGURATIONS:
        webhooks = [{"name": f"{one}.topogate.dev", "clientConfig": {"url": "https://x"}} for one in ("a", "b")]
        fake.put(f"{HOOKS}/{resource}/{name}", **({} if name == names.POLICY_CONFIGURATION else {"webhooks": webhooks}))
    made = House(api, fake)
    yield made
    made.end()


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def ask(house: House, annotation: str) -> None:
    house.fake.put(SECRET, metadata={"annotations": {annotation: "true"}})


def test_nobody_is_asked_while_nothing_changes(house: House, fake: FakeApi) -> None:
    """What has been listed is watched; look after look sends no request at all."""
    eventually(house.published, message="the bundle is published")
    house.looked()
    before = len(fake.requests)
    house.looked(10)
    assert [(one.method, one.path) for one in fake.requests[before:]] == []


@pytest.mark.parametrize("bundle", [None, "", "%", encoded(new_authority(now=NOW, name="foreign").bundle)])
@pytest.mark.parametrize("place", CONFIGURATIONS)
def test_what_somebody_does_to_a_bundle_is_undone(house: House, place: tuple[str, str], bundle: str | None) -> None:
    """Missing, empty, garbage or foreign, in either pair of configurations: ours is back as soon as a watch tells."""
    if place[1] == names.POLICY_CONFIGURATION:
        house.policy.changed(names.POLICY_NAME, policy("gpu: {scope: all}\nreservations: {guard: true}"))
        eventually(lambda: (house.fake.get(f"{HOOKS}/{place[0]}/{place[1]}") or {}).get("webhooks"))
    eventually(house.published, message="the bundle is published")
    path = f"{HOOKS}/{place[0]}/{place[1]}"
    hooks = (house.fake.get(path) or {})["webhooks"]
    hooks[0]["clientConfig"]["caBundle"] = bundle
    house.fake.put(path, webhooks=hooks)
    eventually(house.published, message="ours is back")


def test_it_is_undone_at_once_and_not_at_the_next_look(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch wakes housekeeping: it does not sit out its pause."""
    eventually(house.published, message="the bundle is published")
    seen = house.candidate.looks
    monkeypatch.setattr(housekeeping, "EVERY", 60.0)
    house.wake.set()  # the next look may be one of the long pause already
    eventually(lambda: house.candidate.looks > seen, message="housekeeping looks")
    for number in range(3):
        house.fake.put(f"{HOOKS}/{CONFIGURATIONS[0][0]}/{CONFIGURATIONS[0][1]}", webhooks=unpublished(f"w{number}"))
        eventually(house.published, timeout=PROMPT, message="ours is back")


def unpublished(*hooks: str) -> list[dict[str, Any]]:
    return [{"name": f"{one}.topogate.dev", "clientConfig": {"url": "https://x"}} for one in hooks]


def policy(text: str) -> ConfigMap:
    return ConfigMap(
        name=names.POLICY_NAME, namespace=NAMESPACE, uid="u", resource_version="1", data={names.POLICY_KEY: text}
    )


def test_who_does_not_lead_writes_nothing_and_follows(house: House, fake: FakeApi) -> None:
    """Its leaf is of whoever signs, as soon as every configuration trusts that one."""
    eventually(house.published, message="the bundle is published")
    house.candidate.leads = False
    house.looked()
    writes = sum(fake.count(method) for method in ("PATCH", "POST", "PUT"))
    theirs = new_authority(now=NOW, name="theirs")
    both = encoded(house.authority.kept.bundle + theirs.bundle)
    fake.put(SECRET, data={"ca.crt": both, "ca.key": encoded(theirs.key)})
    house.looked()
    assert house.certificate.signer != theirs.signer
    for resource, name in CONFIGURATIONS:
        hooks = (fake.get(f"{HOOKS}/{resource}/{name}") or {}).get("webhooks") or []
        fake.put(
            f"{HOOKS}/{resource}/{name}", webhooks=[{**hook, "clientConfig": {"caBundle": both}} for hook in hooks]
        )
    eventually(lambda: house.certificate.signer == theirs.signer, message="it follows")
    assert sum(fake.count(method) for method in ("PATCH", "POST", "PUT")) == writes


def test_a_fenced_leader_writes_nothing(house: House, fake: FakeApi) -> None:
    """Who thinks that it leads, and whose Lease has run out a moment ago, is stopped before every single write."""
    eventually(house.published, message="the bundle is published")
    house.candidate.fenced = True
    house.looked()
    writes = sum(fake.count(method) for method in ("PATCH", "POST", "PUT"))
    fake.remove(SECRET)
    fake.put(f"{HOOKS}/{CONFIGURATIONS[0][0]}/{CONFIGURATIONS[0][1]}", webhooks=unpublished("a"))
    house.policy.changed(names.POLICY_NAME, policy("gpu: {scope: all}"))
    house.looked(5)
    assert sum(fake.count(method) for method in ("PATCH", "POST", "PUT")) == writes


def test_a_renewal_that_is_asked_for_goes_through_its_three_steps(house: House) -> None:
    """Announced, published, taken over by every leaf; the old one goes when that is asked for too."""
    eventually(house.published, message="the bundle is published")
    old = house.certificate.signer
    ask(house, "topogate.dev/renew-ca")
    eventually(lambda: "next.key" in house.secret()["data"], message="it is announced")
    eventually(house.published, message="two are trusted")
    assert house.certificate.signer == old
    house.settle()
    eventually(lambda: house.certificate.signer != old, message="the new one signs")
    assert "next.key" not in house.secret()["data"]
    assert house.published()
    ask(house, "topogate.dev/drop-old-ca")
    house.settle()
    eventually(
        lambda: base64.b64decode(house.secret()["data"]["ca.crt"]) == house.certificate.signer,
        message="the old one is dropped",
    )
    eventually(house.published, message="and trusted no more")
    assert list(house.secret()["metadata"].get("annotations") or {}) == []


def test_a_renewal_waits_for_the_last_configuration(house: House, fake: FakeApi) -> None:
    """One that cannot be written holds it up: nobody serves what that one would not trust."""
    eventually(house.published, message="the bundle is published")
    old = house.certificate.signer
    refused = f"{HOOKS}/{CONFIGURATIONS[1][0]}/{names.MUTATING_CONFIGURATION}"
    fake.fault(Answer(403), when=lambda one: (one.method, one.path) == ("PATCH", refused), times=10_000)
    ask(house, "topogate.dev/renew-ca")
    eventually(lambda: "next.key" in house.secret()["data"], message="it is announced")
    house.settle()
    house.looked(5)
    assert "next.key" in house.secret()["data"]
    assert house.certificate.signer == old


def test_a_deleted_secret_is_put_back_with_the_key_in_use(house: House, fake: FakeApi) -> None:
    """A deletion asks for a renewal; until that is through, nothing changes for anybody."""
    eventually(house.published, message="the bundle is published")
    before = house.secret()["data"]
    fake.remove(SECRET)
    eventually(lambda: fake.get(SECRET), message="it is back")
    assert house.secret()["data"]["ca.key"] == before["ca.key"]
    assert base64.b64decode(house.secret()["data"]["ca.crt"]).startswith(base64.b64decode(before["ca.crt"]))
    eventually(house.published, message="two are trusted")
    assert mark(house.certificate.signer) == mark(base64.b64decode(before["ca.crt"]))


def test_who_starts_while_the_secret_is_gone_waits_for_the_leader(api: KubeClient, fake: FakeApi) -> None:
    """A CA of its own would be trusted by nobody."""
    objects = OwnObjects(api, namespace=NAMESPACE, changed=lambda: None)
    started = CurrentAuthority(api, objects, namespace=NAMESPACE)
    with pytest.raises(SecretUnusable, match="the leader restores it"):
        started.obtain(lambda: False)
    assert fake.get(SECRET) is None
    started.obtain(lambda: True)
    assert fake.get(SECRET) is not None


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        pytest.param(AuthorityError("the CA is not valid before 2027-01-15"), "the CA is not valid", id="of the CA"),
        pytest.param(KeyError("private"), "an unexpected KeyError, which the log tells", id="of ours"),
    ],
)
def test_any_fault_of_a_certificate_is_told_and_tried_again(
    api: KubeClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: Exception, said: str
) -> None:
    """A replica that is never ready says why, in its log once and at /readyz as long as it lasts."""
    monkeypatch.setattr(port_certificate, "RETRY", 0.01)
    tries: list[None] = []

    def refused(*_: object) -> None:
        tries.append(None)
        raise fault

    objects = OwnObjects(api, namespace=NAMESPACE, changed=lambda: None)
    objects.start()
    assert objects.wait_synced(60)
    authority = CurrentAuthority(api, objects, namespace=NAMESPACE)
    settings = Settings(namespace=NAMESPACE, identity="a")
    certificate = PortCertificate(api, objects, settings=settings, authority=authority)
    with monkeypatch.context() as patch:
        patch.setattr(authority, "obtain", refused)
        thread = threading.Thread(target=certificate.obtain, args=(threading.Event(),))
        thread.start()
        eventually(lambda: len(tries) > 2, message="it is tried again")
        (check,) = certificate.checks()
        assert (check.ok, said in check.detail, "private" in check.detail) == (False, True, False)
        assert caplog.text.count("the port stays closed: ") == 1
    thread.join(60)
    assert (thread.is_alive(), certificate.obtained, certificate.checks()[0].ok) == (False, True, True)
    objects.stop()


def test_who_starts_serves_no_ca_that_nobody_trusts_yet(house: House, api: KubeClient, fake: FakeApi) -> None:
    """Somebody has put another one into the Secret a moment ago: the leader makes that right, and is waited for."""
    eventually(house.published, message="the bundle is published")
    house.candidate.leads = False
    house.looked()
    theirs = new_authority(now=NOW, name="theirs")
    fake.put(SECRET, data={"ca.crt": encoded(theirs.bundle), "ca.key": encoded(theirs.key)})
    started = CurrentAuthority(api, house.objects, namespace=NAMESPACE, wall=lambda: NOW)
    with pytest.raises(SecretUnusable, match="do not trust CA"):
        started.obtain(lambda: False)
    house.candidate.leads = True
    house.wake.set()
    eventually(lambda: "next.key" in house.secret()["data"], message="the leader has put it right")
    started.obtain(lambda: False)
    assert started.authority().signer == house.certificate.signer


def test_what_may_not_be_read_is_named(api: KubeClient, fake: FakeApi) -> None:
    """Without the right to watch the Secret there is no certificate: readiness says which right is missing."""
    fake.fault(Answer(403), when=lambda one: one.path.endswith("/secrets"), times=10_000)
    objects = OwnObjects(api, namespace=NAMESPACE, changed=lambda: None)
    objects.start()
    try:
        eventually(lambda: any("403" in one for one in objects.missing()), message="the reason is told")
        assert not objects.wait_synced(0.0)
        eventually(
            lambda: [one.split()[0] for one in objects.missing()] == [names.CA_SECRET_NAME], message="it is named"
        )
    finally:
        objects.stop()


def test_a_policy_that_may_not_be_kept_is_told(house: House, fake: FakeApi, caplog: pytest.LogCaptureFixture) -> None:
    """A quota or a policy of others refuses the ConfigMap of the last good one: after a restart it would be missed."""
    kept = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{names.LAST_GOOD_POLICY_NAME}"
    refusal = {"kind": "Status", "reason": "Forbidden", "message": "exceeded quota: few"}
    fake.fault(Answer(403, refusal), when=lambda one: (one.method, one.path) == ("PATCH", kept), times=10_000)
    house.policy.changed(names.POLICY_NAME, policy("gpu: {scope: all}"))
    eventually(
        lambda: "the policy in force could not be written: exceeded quota: few" in caplog.text, message="it is told"
    )


def test_a_fault_of_one_duty_keeps_no_other_from_being_done(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a certificate would not be renewed because a topology cannot be followed."""
    eventually(house.published, message="the bundle is published")

    def broken(_topologies: object) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr(housekeeping, "follow_or_warn", broken)
    eventually(lambda: "a fault of ours" in caplog.text, message="the fault is logged")
    house.fake.remove(SECRET)
    eventually(lambda: house.fake.get(SECRET), message="the Secret is put back")


def test_the_key_of_the_ca_is_in_no_log(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """Neither when it is written nor when what is found is of no use."""
    caplog.set_level(0)
    eventually(house.published, message="the bundle is published")
    key = base64.b64decode(house.secret()["data"]["ca.key"]).decode()
    house.fake.put(SECRET, data={"ca.crt": "Zm9v"})
    eventually(house.published, message="it is put right")
    assert key.splitlines()[1] not in caplog.text
    assert house.secret()["data"]["ca.key"] not in caplog.text
    assert "PRIVATE" not in caplog.text


def test_a_ca_that_is_added_to_the_secret_is_trusted_beside_ours(house: House) -> None:
    """A switch to certificates of others: ours signs on, and the added one goes when no leaf of ours can be alive."""
    eventually(house.published, message="the bundle is published")
    ours, theirs = house.authority.kept.bundle, TestAuthority.make(now=NOW, name="topogate").pem
    house.fake.put(SECRET, data={"ca.crt": encoded(ours + theirs)})
    eventually(lambda: house.bundles() == {encoded(ours + theirs)}, message="both are trusted")
    assert house.certificate.signer == ours
    house.settle(RETIRE - 60)
    house.looked()
    assert house.bundles() == {encoded(ours + theirs)}
    house.settle(120)
    eventually(lambda: house.bundles() == {encoded(ours)}, message="only ours is")


def test_a_ca_that_is_added_goes_when_that_is_asked_for(house: House) -> None:
    """Who begins a switch can take it back."""
    eventually(house.published, message="the bundle is published")
    ours, theirs = house.authority.kept.bundle, TestAuthority.make(now=NOW, name="topogate").pem
    house.fake.put(SECRET, data={"ca.crt": encoded(ours + theirs)})
    eventually(lambda: house.bundles() == {encoded(ours + theirs)}, message="both are trusted")
    ask(house, "topogate.dev/drop-old-ca")
    house.settle()
    eventually(lambda: house.bundles() == {encoded(ours)}, message="only ours is")
    assert house.certificate.signer == ours


def test_the_ca_of_cert_manager_signs_on_and_nothing_is_written(
    api: KubeClient, fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way back: its CA in our Secret, which the configurations trust already. A renewal makes one of our own."""
    monkeypatch.setattr(housekeeping, "EVERY", 0.05)
    monkeypatch.setattr(housekeeping, "REST", 0.01)
    theirs = TestAuthority.make(now=NOW, name="topogate", days=3650)
    for resource, name in CONFIGURATIONS:
        webhooks = [{"name": "a.topogate.dev", "clientConfig": {"url": "https://x", "caBundle": encoded(theirs.pem)}}]
        fake.put(f"{HOOKS}/{resource}/{name}", **({} if name == names.POLICY_CONFIGURATION else {"webhooks": webhooks}))
    fake.put(SECRET, data={"ca.crt": encoded(theirs.pem), "ca.key": encoded(theirs.key_pem)})
    house = House(api, fake)
    try:
        started = CurrentAuthority(api, house.objects, namespace=NAMESPACE, wall=lambda: NOW)
        started.obtain(lambda: False)  # a leader is there: nobody is waited for
        house.looked()
        assert house.certificate.signer == theirs.pem
        assert house.bundles() == {encoded(theirs.pem)}
        assert sum(fake.count(method) for method in ("PATCH", "POST", "PUT")) == 0
        ask(house, "topogate.dev/renew-ca")
        eventually(lambda: "next.key" in house.secret()["data"], message="one of our own is announced")
        eventually(house.published, message="both are trusted")
        house.settle()
        eventually(lambda: house.certificate.signer != theirs.pem, message="it signs")
        assert encoded(theirs.key_pem) not in str(house.secret())
    finally:
        house.end()
