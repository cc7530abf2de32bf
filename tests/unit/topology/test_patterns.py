"""Regular expressions over node names: what they match, what is refused, and that none takes long."""

from __future__ import annotations

import pytest

from engine.topology.patterns import MAX_STATES, NameIndex, PatternCache, PatternError, StepBudget

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


def test_all_patterns_together_keep_a_bounded_number_of_states() -> None:
    """Each of these makes sets of up to 500 states for every character; the ones used last are kept."""
    cache, names = PatternCache(states=50_000), [f"{'ab' * 100}{at}" for at in range(20)]
    patterns = [f"(a|b|[ab][ab]){{1,100}}c{at}" for at in range(20)]
    for pattern in patterns:
        assert NameIndex(names, cache).find(f"{pattern}|b3", StepBudget(ENOUGH)) == [3]
        assert cache.states <= 50_000
    assert 0 < len(cache) < len(patterns)


def test_one_pattern_keeps_a_bounded_number_of_states() -> None:
    """Within a long name too; it matches the same without the sets."""
    cache, kept = PatternCache(), []
    for at in range(120):
        name = f"{at:07b}".replace("0", "a").replace("1", "b") * 30
        found = NameIndex([name], cache).find("a.{600}(c|.{600}d)|^(a{7}){30}$", StepBudget(ENOUGH))
        assert found == ([] if at else [0])
        kept.append(cache.states)
    assert 99_000 < max(kept) < 101_000 + MAX_STATES


def test_many_patterns_are_forgotten_one_by_one() -> None:
    """And what can be no pattern is not kept at all, however long."""
    cache = PatternCache(patterns=3)
    for pattern in ("a", "b", "(", "a", "d"):
        try:
            NameIndex(NODES, cache).find(pattern, StepBudget(ENOUGH))
        except PatternError:
            assert pattern == "("
    assert len(cache) == 3
    assert [cache.find(text) is cache.find(text) for text in ("b", "a", "d")] == [False, True, True]
    with pytest.raises(PatternError, match="longer than"):
        NameIndex(NODES, cache).find("a" * 1_000_000, StepBudget(ENOUGH))
    assert len(cache) == 3


def test_a_pattern_whose_steps_are_used_up_is_counted() -> None:
    """It keeps its sets like any other."""
    cache = PatternCache()
    with pytest.raises(PatternError, match="takes too long"):
        NameIndex(["a" * 250], cache).find("^(a?){200}b", StepBudget(10_000))
    assert cache.states > 400
