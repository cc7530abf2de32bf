"""A leader whose process stands still (a frozen container, a paused machine) and goes on later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.cluster.client import KubeClient
from engine.cluster.election import Terms
from engine.cluster.lease import LeaseCandidate
from tests.support.eventually import eventually
from tests.support.fake_api import FakeApi
from tests.support.leader_process import TARGET

ROOT = Path(__file__).parents[2]
TERMS = Terms(duration=4.5, renew_deadline=3.0, retry=0.2)
LONG = Terms(duration=90.0, renew_deadline=60.0, retry=0.2)  # no busy machine sits that out


class Leader:
    """A process that leads."""

    def __init__(self, kubeconfig: str, terms: Terms) -> None:
        times = [str(one) for one in (terms.duration, terms.renew_deadline, terms.retry)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.leader_process", kubeconfig, "frozen", *times],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.says() == "leads"

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self) -> None:
        """Have it write; whether it does, it says."""
        assert self.process.stdin is not None
        self.process.stdin.write("write\n")
        self.process.stdin.flush()

    def freeze(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)


@pytest.fixture
def leader(request: pytest.FixtureRequest, fake: FakeApi, kubeconfig: Callable[..., str]) -> Iterator[Leader]:
    fake.put(TARGET, data={})
    made = Leader(kubeconfig(fake.url), getattr(request, "param", TERMS))
    yield made
    made.process.kill()
    made.process.communicate()


def test_a_leader_that_stood_still_writes_nothing_after_its_lease(
    leader: Leader, fake: FakeApi, api: KubeClient
) -> None:
    """Its first act after SIGCONT is stopped by the clock, before it has heard that another one leads."""
    leader.ask()
    assert leader.says() == "written"
    leader.freeze()
    other = LeaseCandidate(api, "topogate-system", "topogate", "other", terms=TERMS)
    other.start()
    try:
        eventually(lambda: other.is_leader, message="another one takes over")
        writes = fake.count("PATCH")
        leader.ask()
        leader.thaw()
        assert leader.says() == "fenced"
        leader.ask()
        assert leader.says() == "fenced"
        assert (fake.count("PATCH"), other.is_leader) == (writes, True)
    finally:
        other.stop()


@pytest.mark.parametrize("leader", [LONG], indirect=True, ids=["a long deadline"])
def test_a_leader_that_stood_still_for_a_moment_leads_on(leader: Leader) -> None:
    """Shorter than its deadline: nobody else can have taken over, and nothing is lost."""
    leader.freeze()
    leader.ask()
    leader.thaw()
    assert leader.says() == "written"
