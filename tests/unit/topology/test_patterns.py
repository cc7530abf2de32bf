"""Regular expressions over node names: what they match, what is refused, and that none takes long."""

from __future__ import annotations

import pytest

from engine.topology.patterns import NameIndex, PatternError, StepBudget

NODES = ("rack1-node1", "rack1-node2", "rack11-node1", "gpu.rack2", "a")
ENOUGH = 1_000_000


def found(pattern: str, *names: str) -> list[str]:
    names = names or NODES
    return [names[index] for index in NameIndex(names).find(pattern, StepBudget(ENOUGH))]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("^rack1-node[0-9]+$", ["rack1-node1", "rack1-node2"]),
        ("rack1-", ["rack1-node1", "rack1-node2"]),
        ("node1$", ["rack1-node1", "rack11-node1"]),
        (r"^gpu\.rack\d$", ["gpu.rack2"]),
        ("^(rack1|gpu)", ["rack1-node1", "rack1-node2", "rack11-node1", "gpu.rack2"]),
        ("^(?P<row>rack1)-", ["rack1-node1", "rack1-node2"]),
        ("^rack1{2}-", ["rack11-node1"]),
        ("^[[:alpha:]]+$", ["a"]),
        ("^[^r].*", ["gpu.rack2", "a"]),
        (r"^[\w.]{9}$", ["gpu.rack2"]),
        (r"\Agpu.*?2\z", ["gpu.rack2"]),
        ("", list(NODES)),
        ("^$", []),
        ("RACK", []),
        ("rack{", []),
        (r"a\-b|a$", ["a"]),
    ],
)
def test_a_pattern_matches_as_in_go(pattern: str, names: list[str]) -> None:
    """Anywhere in the name unless it is anchored."""
    assert found(pattern) == names


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "ends too soon|unmatched"),
        ("a)", "unmatched"),
        ("(a", "unmatched"),
        ("[a", "ends too soon"),
        ("a\\", "ends too soon"),
        ("*a", "nothing before"),
        ("a**", "repetition of a repetition"),
        ("a{5,2}", "bad repetition"),
        ("a{1001}", "bad repetition"),
        ("[z-a]", "bad range"),
        ("[[:latin:]]", "unknown class"),
        (r"\bnode", "not supported"),
        (r"\pL", "not supported"),
        (r"\1", "not supported"),
        ("(?i)node", "not supported"),
        ("(?=node)", "not supported"),
        ("a" * 1_001, "longer than 1,000"),
        ("(" * 60 + ")" * 60, "50 groups"),
        ("((a{100}){100}){100}", "too large"),
        ("((((){1000}){1000}){1000}){1000}", "too large"),
    ],
)
def test_what_is_no_pattern_or_not_supported_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(PatternError, match=said):
        found(pattern)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(a|aa)+$", "(.*)*b$", "^(a|a?)+$", "^.*.*.*.*.*.*b$", "(x+x+)+y"])
def test_a_hostile_pattern_costs_no_more_than_its_steps(pattern: str) -> None:
    """They take a backtracking matcher until the end of time on such a name."""
    name = "a" * 252 + "-"
    assert found(pattern, name) == []


def test_when_the_steps_are_used_up_matching_ends() -> None:
    with pytest.raises(PatternError, match="takes too long"):
        NameIndex(["a" * 250] * 1_000).find("^(a?){200}b", StepBudget(10_000))


def test_a_name_is_found_once_and_in_order() -> None:
    """However often the literal text of the pattern is in it."""
    names = ("aa-aa", "b", "aa", "aab-aa")
    assert found("aa", *names) == ["aa-aa", "aa", "aab-aa"]
    assert found("aa") == []
    assert NameIndex(()).find("aa", StepBudget(1)) == []
