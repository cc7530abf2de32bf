"""What the kube-scheduler's words about a pod that it did not bind are about. Pure."""

from __future__ import annotations

from typing import Final

_BEGINNING: Final = " nodes are available: "
_OF_HOSTS: Final = "node(s)"


def about_the_pod(words: str) -> bool:
    """True when a pod was refused before any host was looked at: no other host would do, until somebody mends the pod.

    The scheduler counts hosts by reason ("3 Insufficient cpu, 5 node(s) had untolerated taint(s)"). Where a plugin
    refuses the pod as such (a volume claim that is not there or not bound yet, claims that are not made) its words
    stand there without a number (`FitError` of kube-scheduler; `PreFilterMsg`).
    """
    _, found, said = words.partition(_BEGINNING)
    said = said.partition(" preemption:")[0]
    return bool(found and said) and not said[0].isdigit() and not said.startswith(_OF_HOSTS)
