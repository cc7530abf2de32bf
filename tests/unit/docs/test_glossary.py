"""The glossary explains every word that the code uses in a meaning of its own."""

from __future__ import annotations

import re
from typing import Final, get_args

import pytest

from engine.api.reasons import REASONS, Phase
from tests.support.pages import ROOT, pages

PAGE = pages()["docs/glossary.md"]
TERMS = {term.lower() for term in re.findall(r"\*\*([^*]+)\*\*", PAGE.text)}
# Words of reason codes that mean what they always mean.
PLAIN: Final = frozenset(
    re.findall(
        r"\w+",
        """allowed annotation annotations behind by class conflicting costly excluded exceeded expired field for free gp
        gpu gpus immutable in insufficient invalid kept kind kueue labels large limit lost mismatch missing name
        namespace no node nodes not of off or other others part pod pods ready refused requested resource schedule
        search set silent small suspended too unhealthy unknown unsupported us value waiting scheduler size priority""",
    )
)


def known(word: str) -> bool:
    """True when a term of the page is this word, in one of its forms, or has it as a part."""
    parts = {part for term in TERMS for part in re.split(r"[ -]", term)}
    forms = {word, word.rstrip("s"), word.removesuffix("ed"), word.removesuffix("d"), word.removesuffix("set") + "set"}
    return bool(forms & parts) or word.replace("timeout", "time-out") in TERMS


def words_of_codes() -> list[str]:
    """The words of all reason codes."""
    found = {word.lower() for code in REASONS for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]+", code)}
    return sorted(found - PLAIN)


def test_the_vocabulary_of_contributors_is_explained() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = re.search(r"Words in code, docs and messages: (.*?)\. No synonyms", text, re.DOTALL)
    assert listed
    for word in re.split(r",\s+", listed[1]):
        assert known(word) or word in TERMS, word


@pytest.mark.parametrize("word", words_of_codes())
def test_a_word_of_a_reason_code_is_explained(word: str) -> None:
    assert known(word), f"{word}: explain it in docs/glossary.md, or add it to PLAIN"


def test_the_phases_are_listed() -> None:
    for phase in get_args(Phase):
        assert f"`{phase}`" in PAGE.text


def test_no_term_is_explained_twice() -> None:
    first = re.findall(r"^\| \*\*([^*]+)\*\*", PAGE.text, re.MULTILINE)
    assert len(first) == len(set(first)) > 40
