from __future__ import annotations

import pytest

from engine.api.text import join_and, join_comma, join_phrases, plural, quote, suggest, truncate_bytes

LEVELS = ("block", "rack", "host")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("rak", "rack"), ("RACK", "rack"), ("blocks", "block"), ("zone", None), ("", None), ("x" * 100_000, None)],
)
def test_suggests_the_closest_or_nothing(typed: str, meant: str | None) -> None:
    """No suggestion is better than a bad one."""
    assert suggest(typed, LEVELS) == meant


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("rak", '"rak"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("a\nb\x1b[31m", '"a\\nb\\x1b[31m"'),
        ("\u202e", '"\\u202e"'),
        ("räck", '"räck"'),
        ("x" * 64, '"' + "x" * 60 + '..."'),
        ("x" * 63, '"' + "x" * 63 + '"'),
    ],
)
def test_quotes_user_input(text: str, quoted: str) -> None:
    """Control and invisible characters are escaped, long values cut at 63 characters."""
    assert quote(text) == quoted


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "pod", "1 pod"),
        (0, "pod", "0 pods"),
        (4608, "GPU", "4,608 GPUs"),
        (2, "box", "2 boxes"),
        (2, "bay", "2 bays"),
    ],
)
def test_plurals(count: int, noun: str, text: str) -> None:
    """One pod, two pods; thousands are separated."""
    assert plural(count, noun) == text


def test_plural_of_y() -> None:
    """Level aliases are nouns of the admin's choice."""
    assert plural(2, "factory") == "2 factories"
    assert plural(2, "bay") == "2 bays"


def test_long_lists_are_cut() -> None:
    """Twelve names are enough."""
    assert join_comma(["a", "b"]) == "a, b"
    assert join_comma([f"n{i}" for i in range(14)]).endswith("n11 and 2 more")


@pytest.mark.parametrize(
    ("names", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_joined(names: list[str], text: str) -> None:
    """Names of a sentence."""
    assert join_and(names) == text


def test_fit_counts_bytes_and_cuts_at_a_word() -> None:
    """A limit of the API is in bytes."""
    assert truncate_bytes("short", 120) == "short"
    assert truncate_bytes("one two three", 12) == "one two..."
    assert len(truncate_bytes("ä" * 2000, 1024).encode()) <= 1024


def test_phrases_in_words_are_not_cut() -> None:
    """Names of users are cut where they are listed; phrases that are safe already stay whole."""
    long = "x" * 80
    assert join_phrases([long, "b", "c"]) == f"{long}, b and c"
    assert join_and([long]) == f"{long[:60]}..."
    assert (join_phrases([]), join_phrases(["a"])) == ("", "a")
