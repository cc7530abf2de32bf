"""The process under test: a candidate for the Lease that writes when it is told to.

Run as `python -m tests.support.leader_process KUBECONFIG IDENTITY DURATION DEADLINE RETRY`. Each line on stdin is one
fenced write; stdout has `leads` once, and then `written` or `fenced` for each.
"""

from __future__ import annotations

import sys
import time

from engine.cluster.client import connect
from engine.cluster.election import Terms
from engine.cluster.lease import LeaseCandidate, NotLeader

TARGET = "/api/v1/namespaces/topogate-system/configmaps/written"


def main() -> None:
    kubeconfig, identity, *times = sys.argv[1:]
    api = connect(kubeconfig=kubeconfig, user_agent=identity)
    candidate = LeaseCandidate(api, "topogate-system", "topogate", identity, terms=Terms(*map(float, times)))
    candidate.start()
    while not candidate.is_leader:
        time.sleep(0.01)
    print("leads", flush=True)
    for _ in sys.stdin:
        try:
            candidate.check()
        except NotLeader:
            print("fenced", flush=True)
            continue
        api.request("PATCH", TARGET, body={"data": {"by": identity}}, content_type="application/merge-patch+json")
        print("written", flush=True)


if __name__ == "__main__":
    main()
