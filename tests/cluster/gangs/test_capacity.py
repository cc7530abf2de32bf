"""No host is ever promised twice: usage and reservations, seen from outside while gangs come and go."""

from __future__ import annotations

import random
from collections import Counter

from local.kubelets import STOP_AFTER
from local.nodes import HostShape
from tests.support.eventually import eventually
from tests.support.gang_steps import complete, conditions, delete_job, resume, status_of, suspend
from tests.support.gangs import Json, Namespace, prefer, require
from tests.support.observer import Observer

GANGS = 30
AT_ONCE = 9
ENDS = ("complete", "complete", "delete early", "delete late", "suspend")


HOSTS_OF = {"host": 1, "rack": 2, "block": 4, "": 8}
ASKS = (require("rack"), require("block"), prefer("rack"), {**require("block"), **prefer("rack")}, require("host"))


def _random_gang(random_: random.Random) -> tuple[int, int, int, dict[str, str]]:
    """Pods, GPUs and cores of a pod, and the request of a gang that fits the fleet when it is empty."""
    ask, gpus, cores = random_.choice(ASKS), random_.choice([1, 2, 4, 8]), random_.randint(1, 4)
    per_host = min(8 // gpus, 12 // cores)
    most = HOSTS_OF[ask.get("topogate.dev/require-topology", "")] * per_host
    return random_.randint(1, min(most, 6)), gpus, cores, ask


def _pod(gpus: int, cores: int) -> Json:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"cpu": str(cores)}}
    return {"containers": [{"name": "main", "image": "example.com/train:1", "resources": resources}]}


def test_usage_and_reservations_never_exceed_a_host_while_gangs_come_and_go(gangs: Namespace) -> None:
    """Thirty random gangs, completed, suspended or deleted at any moment, on eight hosts of 8 GPUs and 12 cores."""
    random_ = random.Random(20261121)
    gangs.fleet.grid("2x2x2", shape=HostShape(cpu="12"))
    waiting = [f"gang-{number}" for number in range(GANGS)]
    alive: dict[str, str] = {}  # gang -> how it will end
    started: set[str] = set()

    def turn() -> bool:
        while waiting and len(alive) < AT_ONCE:
            name = waiting.pop()
            pods, gpus, cores, ask = _random_gang(random_)
            slow = {STOP_AFTER: random_.choice(["0s", "0s", "700ms"])}
            gangs.submit(name, pods=pods, annotations=ask, pod_spec=_pod(gpus, cores), pod_annotations=slow)
            alive[name] = random_.choice(ENDS)
        for name, end in list(alive.items()):
            if end == "delete early" and random_.random() < 0.3:
                delete_job(gangs, name)
                del alive[name]
                continue
            if end == "suspend" and random_.random() < 0.3:
                suspend(gangs, name)
                resume(gangs, name)
                alive[name] = "complete"
            bound = gangs.bound(name)
            if bound and name not in started:
                started.add(name)
            elif bound and end == "delete late":
                delete_job(gangs, name)
                del alive[name]
            elif bound and "Complete" in conditions(gangs, name):
                del alive[name]
            elif bound:
                complete(gangs, name)
        return not waiting and not alive

    with Observer(gangs.client, gangs.name, Counter({"nvidia.com/gpu": 8, "cpu": 12})) as observer:
        eventually(turn, 400.0, lambda: f"all gangs have ended; {alive} are left, {len(waiting)} to come")
    assert observer.excesses == [], "\n".join(observer.excesses[:3])
    assert observer.looks > 30
    assert observer.reserving > 0
    assert observer.fullest == 8
    assert len(started) >= GANGS // 2


def test_a_pod_of_a_daemon_set_counts_before_it_is_there(gangs: Namespace) -> None:
    """It runs on two hosts; on the third its own gate holds it: a gang leaves its GPUs alone until it is gone."""
    hosts = gangs.fleet.grid("1x1x3")
    agent = {**_pod(4, 1), "nodeSelector": dict(gangs.fleet.selector), "schedulingGates": [{"name": "a.example/slow"}]}
    labels = {"app": "agent"}
    path = f"/apis/apps/v1/namespaces/{gangs.name}/daemonsets"
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": agent}}
    gangs.client.create(path, {"metadata": {"name": "agent"}, "spec": spec})
    pods = f"/api/v1/namespaces/{gangs.name}/pods"
    agents = eventually(
        lambda: len(found := gangs.client.items(pods, selector="app=agent")) == 3 and found,
        message="the DaemonSet has its pods",
    )
    for pod in agents[:2]:
        gangs.client.patch(f"{pods}/{pod['metadata']['name']}", {"spec": {"schedulingGates": []}})
    eventually(
        lambda: sum(bool(pod["spec"].get("nodeName")) for pod in gangs.client.items(pods, selector="app=agent")) == 2,
        message="two of them are bound",
    )
    gangs.pods_seen()
    gangs.submit("half", pods=3, gpus=4, annotations=require("rack"))
    assert set(gangs.all_bound("half", 3).values()) == set(hosts)
    delete_job(gangs, "half")
    gangs.submit("whole", pods=1, annotations=require("rack"))
    gangs.waits("whole")
    eventually(
        lambda: "3 nodes = 2 in use + 1 kept for DaemonSets" in status_of(gangs, "whole")["message"],
        message=lambda: str(status_of(gangs, "whole")),
    )
    gangs.client.delete(f"{path}/agent")
    gangs.all_bound("whole", 1)


def test_a_terminating_pod_keeps_its_room_until_it_is_gone(gangs: Namespace) -> None:
    """The deleted Job's pods take a second to stop: the next gang is not planned onto their hosts before."""
    gangs.fleet.grid("1x1x2")
    gangs.submit("first", pods=2, annotations=require("rack"), pod_annotations={STOP_AFTER: "1s"})
    gangs.all_bound("first", 2)
    gangs.submit("next", pods=2, annotations=require("rack"))
    gangs.waits("next")
    with Observer(gangs.client, gangs.name, Counter({"nvidia.com/gpu": 8, "cpu": 96})) as observer:
        delete_job(gangs, "first")
        gangs.all_bound("next", 2)
    assert observer.excesses == [], "\n".join(observer.excesses[:3])
    assert observer.looks > 0
