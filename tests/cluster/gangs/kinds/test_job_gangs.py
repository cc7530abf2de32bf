"""Jobs as gangs, beside what tests/cluster/gangs has of them: growth, and the Jobs of a CronJob."""

from __future__ import annotations

import time

from tests.support.eventually import always, eventually
from tests.support.gangs import require
from tests.support.kind_cases import CASES, job
from tests.support.kind_gangs import Gangs


def test_a_running_job_grows_beside_itself(gangs: Gangs) -> None:
    """parallelism and completions go up together: the new pods come to the same rack, the others stay."""
    gangs.fleet.grid("1x2x4")
    gangs.create("Job", "train", job(gangs, pods=2), annotations=require("rack"))
    before = gangs.all_run(2)
    gangs.merge("Job", "train", {"parallelism": 4, "completions": 4})
    hosts = gangs.all_run(4)
    assert before.items() <= hosts.items()
    assert len(gangs.racks(hosts)) == 1


def test_a_growth_of_which_only_a_part_fits_starts_nothing(gangs: Gangs) -> None:
    """Two more pods and one host left in the rack: the two run on alone until there is a second."""
    gangs.fleet.grid("1x1x3")
    gangs.create("Job", "train", job(gangs, pods=2), annotations=require("rack"))
    before = gangs.all_run(2)
    gangs.merge("Job", "train", {"parallelism": 4, "completions": 4})
    eventually(lambda: len(gangs.members()) == 4, message="the new pods exist")
    always(lambda: gangs.hosts() == before, seconds=1.5)
    gangs.fleet.host("host-003", block="block-0", rack="rack-00")
    assert len(gangs.racks(gangs.all_run(4))) == 1


def test_every_job_of_a_cronjob_is_a_gang(gangs: Gangs) -> None:
    """The annotation on its jobTemplate: a Job that it makes is held by suspension, placed, and one gang."""
    gangs.fleet.grid("1x1x3")
    template = {"metadata": {"annotations": require("rack")}, "spec": job(gangs)}
    spec = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": template}
    gangs.create("CronJob", "often", spec)
    # A run that was missed is made up for at once: nobody waits for the minute.
    missed = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 90))
    gangs.client.patch(f"{gangs.path('CronJob', 'often')}/status", {"status": {"lastScheduleTime": missed}})
    (made,) = eventually(lambda: gangs.items("Job"), message="its first Job")
    gangs.waits("Job", made["metadata"]["name"])
    assert gangs.suspended("Job", made["metadata"]["name"])
    gangs.merge("CronJob", "often", {"suspend": True})
    gangs.fleet.host("host-003", block="block-0", rack="rack-00")
    gangs.all_run(4)


def test_growth_waits_behind_nobody_in_its_own_rack(gangs: Gangs) -> None:
    """What another gang holds is not taken: the growth waits until that ends."""
    gangs.fleet.grid("1x1x4")
    gangs.create("Job", "train", job(gangs, pods=2), annotations=require("rack"))
    before = gangs.all_run(2)
    CASES["job"].submit(gangs, "other", require("rack"), parallelism=2, completions=2)
    gangs.all_run(4)
    gangs.merge("Job", "train", {"parallelism": 4, "completions": 4})
    eventually(lambda: len(gangs.members()) == 6, message="the new pods exist")
    gangs.client.delete(gangs.path("Job", "other"))
    hosts = gangs.all_run(4)
    assert before.items() <= hosts.items()
