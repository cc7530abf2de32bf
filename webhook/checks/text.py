"""What the commands print about checks: one line for each, the remedy below it, and the counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.api.text import plural
from webhook.checks.model import DoctorAnswer, Finding, FindingResult, counted

_WIDTH: Final = 4  # of the longest result


@dataclass(frozen=True, slots=True)
class FindingText:
    """One finding in words: `result` is printed in front of `text`, in colour; `remedy` below, "" for none."""

    result: FindingResult
    text: str
    remedy: str

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines without colour."""
        first = f"{self.result:<{_WIDTH}}  {self.text}"
        return (first, f"{'':<{_WIDTH}}    -> {self.remedy}") if self.remedy else (first,)


def finding_texts(findings: Iterable[Finding]) -> list[FindingText]:
    """Return the findings in words, in their order."""
    return [FindingText(one.result, f"{one.check}: {one.found}", one.remedy or "") for one in findings]


def verdict_text(findings: Sequence[Finding]) -> str:
    """Return the counts of what is not good, or that all is good."""
    warned, failed, skipped = (counted(findings, result) for result in ("warn", "fail", "skip"))
    parts = [plural(number, noun) for number, noun in ((failed, "failure"), (warned, "warning")) if number]
    if skipped:
        parts.append(f"{plural(skipped, 'check')} skipped")
    good = "" if warned or failed else "nothing fails" if skipped else "all good"
    return ", ".join(part for part in (good, *parts) if part)


def doctor_advice(answer: DoctorAnswer) -> list[str]:
    """Return the lines about what to write into the policy; [] where nothing is to be changed."""
    return ["", "write into policy.yaml:", *answer.policy.splitlines()] if answer.policy is not None else []
