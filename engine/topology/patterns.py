"""Matches regular expressions over node names in linear time, so that no pattern can hold the process up.

The patterns are those of Go's regexp package, as Volcano uses them; what has no meaning over node names, or is rare, is
refused: word boundaries, flags, Unicode classes and escapes by number. A pattern becomes a Thompson automaton, whose
sets of states are made while they are needed (as RE2 does).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

MAX_LENGTH: Final = 1_000  # characters of a pattern
MAX_STATES: Final = 2_000  # of its automaton: a{1000} has a thousand
_MOST_PARTS: Final = 10_000  # of its tree, with the repetitions written out
MAX_DEPTH: Final = 50  # groups in groups
MAX_REPEAT: Final = 1_000  # Go's own limit
_MOST_ANSWERS: Final = 128  # names of one pattern; those of a large rack
_MOST_IN_SETS: Final = 100_000  # states in the sets that one pattern keeps, about 65 bytes each
_MOST_KEPT: Final = 1_000_000  # states, in sets or not, that all patterns keep between two searches
_MOST_PATTERNS: Final = 4_096

_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")  # all characters of a node's name
_DIGITS: Final = frozenset("0123456789")
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz")
_CLASSES: Final = {"d": _DIGITS, "w": _DIGITS | _LETTERS, "s": frozenset[str]()}
_POSIX: Final = {
    **dict.fromkeys(("alnum",), _DIGITS | _LETTERS),
    **dict.fromkeys(("alpha", "lower"), _LETTERS),
    **dict.fromkeys(("digit",), _DIGITS),
    **dict.fromkeys(("upper", "space", "blank", "cntrl"), frozenset[str]()),
    **dict.fromkeys(("punct",), frozenset("-.")),
    "word": _DIGITS | _LETTERS,
    "xdigit": _DIGITS | frozenset("abcdef"),
}
_TOO_LARGE: Final = "too large when its repetitions are written out"
_BEGIN, _END, _SPLIT, _MATCH = "begin", "end", "split", "match"


class PatternError(ValueError):
    """A pattern that cannot be used; the text says why."""


class StepBudget:
    """The steps that matching may still take. `spend` raises PatternError when there are none left."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def spend(self, steps: int) -> None:
        """Take steps."""
        self._steps -= steps
        if self._steps < 0:
            raise PatternError("matching takes too long")


@dataclass(frozen=True, slots=True)
class _State:
    """A state: characters that lead to `to`, or `_SPLIT` to all of `to`, or an assertion before `to`, or the end."""

    what: frozenset[str] | str
    to: tuple[int, ...]


class Pattern:
    """A compiled pattern. Raises PatternError for one that is no pattern or is refused."""

    def __init__(self, text: str) -> None:
        self._states, self._start, self.literal = _Compiler(text).compile()
        self._sets: dict[frozenset[int], dict[str, frozenset[int]]] = {}
        self._in_sets = 0  # states in all of them
        self._answers: dict[str, bool] = {}  # the same few names are asked for whenever a node comes or goes

    @property
    def kept(self) -> int:
        """How many states it keeps, of the automaton and in sets, and answers."""
        return len(self._states) + self._in_sets + len(self._answers)

    def matches(self, name: str, budget: StepBudget) -> bool:
        """Return whether the pattern matches anywhere in the name."""
        known = self._answers.get(name)
        if known is None:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            known = self._answers[name] = self._matches(name, budget)
        return known

    def _matches(self, name: str, budget: StepBudget) -> bool:
        now = self._closed([self._start], budget, begin=True, end=not name)
        if self._in_sets >= _MOST_IN_SETS:
            self._sets, self._in_sets = {}, 0
        budget.spend(len(name))
        for place, char in enumerate(name):
            if self._done(now):
                return True
            last = place == len(name) - 1
            known = None if last else self._following(now)
            following = None if known is None else known.get(char)
            if following is None:
                reached = [one.to[0] for one in map(self._states.__getitem__, now) if char in one.what]
                following = self._closed([*reached, self._start], budget, begin=False, end=last)
                if known is not None and self._in_sets < _MOST_IN_SETS:
                    known[char] = following
                    self._in_sets += len(following) + 1
            now = following
        return self._done(now)

    def _following(self, now: frozenset[int]) -> dict[str, frozenset[int]] | None:
        """Return the sets that follow a set, by character; None when no more are kept."""
        known = self._sets.get(now)
        if known is None and self._in_sets < _MOST_IN_SETS:
            known = self._sets[now] = {}
            self._in_sets += len(now) + 1
        return known

    def _done(self, states: frozenset[int]) -> bool:
        return 0 in states

    def _closed(self, first: Iterable[int], budget: StepBudget, *, begin: bool, end: bool) -> frozenset[int]:
        """Return the states that wait for a character, and 0 for a match, reached without one."""
        found: set[int] = set()
        stack = list(first)
        seen = set(stack)
        while stack:
            at = stack.pop()
            state = self._states[at]
            passes = state.what == _SPLIT or (state.what == _BEGIN and begin) or (state.what == _END and end)
            if passes:
                fresh = [one for one in state.to if one not in seen]
                seen.update(fresh)
                stack += fresh
            elif not isinstance(state.what, str) or state.what == _MATCH:
                found.add(at)
        budget.spend(len(seen))
        return frozenset(found)


def _compiled(text: str) -> Pattern | str:
    """Return the compiled pattern, or why it cannot be used."""
    try:
        return Pattern(text)
    except PatternError as error:
        return str(error)


class PatternCache:
    """The patterns that were used last: at most so many, which keep at most so many states between two searches."""

    def __init__(self, patterns: int = _MOST_PATTERNS, states: int = _MOST_KEPT) -> None:
        self._most_patterns, self._most_states = patterns, states
        self._lock = Lock()
        self._known: dict[str, tuple[Pattern | str, int]] = {}  # with its states when it was last used; oldest first
        self._states = 0

    @property
    def states(self) -> int:
        """How many states its patterns keep."""
        return self._states

    def __len__(self) -> int:
        return len(self._known)

    def find(self, text: str) -> Pattern | str:
        """Return the compiled pattern, or why it cannot be used. Give it back with `put` after use."""
        with self._lock:
            known = self._known.get(text)
        return _compiled(text) if known is None else known[0]

    def put(self, text: str, pattern: Pattern | str) -> None:
        """Keep a pattern that was used; those that were used longest ago give way."""
        if len(text) > MAX_LENGTH:
            return  # refused at a glance
        kept = pattern.kept if isinstance(pattern, Pattern) else 1
        with self._lock:
            self._forget(text)
            self._known[text] = (pattern, kept)
            self._states += kept
            while len(self._known) > self._most_patterns or self._states > self._most_states:
                self._forget(next(iter(self._known)))

    def _forget(self, text: str) -> None:
        self._states -= self._known.pop(text, (None, 0))[1]


_CACHE: Final = PatternCache()


class NameIndex:
    """Names to be matched; a pattern that contains a literal text looks only at the names that contain it."""

    def __init__(self, names: Sequence[str], cache: PatternCache = _CACHE) -> None:
        self._names = names
        self._cache = cache
        self._joined = "\n" + "\n".join(names) + "\n"
        self._begins: dict[int, int] = {}
        at = 1
        for index, name in enumerate(names):
            self._begins[at] = index
            at += len(name) + 1

    def find(self, text: str, budget: StepBudget) -> list[int]:
        """Return the indexes of the names that the pattern matches. Raises PatternError."""
        pattern = self._cache.find(text)
        try:
            if isinstance(pattern, str):
                raise PatternError(pattern)
            return [index for index in self._candidates(pattern.literal) if pattern.matches(self._names[index], budget)]
        finally:
            self._cache.put(text, pattern)

    def _candidates(self, literal: str) -> Iterator[int]:
        if not literal:
            yield from range(len(self._names))
            return
        at = self._joined.find(literal)
        while at >= 0:
            begin = self._joined.rfind("\n", 0, at + 1) + 1
            if begin not in self._begins:
                return
            yield self._begins[begin]
            at = self._joined.find(literal, self._joined.index("\n", begin) + (literal[0] != "\n"))


class _Compiler:
    """A recursive-descent parser that makes states back to front: each part knows the state that follows it."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise PatternError(f"longer than {MAX_LENGTH:,} characters")
        self._text = text
        self._at = 0
        self._states: list[_State] = [_State(_MATCH, ())]
        self._parts = 0  # that were written out

    def compile(self) -> tuple[list[_State], int, str]:
        """Return the states, the first one, and the literal text that every match contains, see `_literal`."""
        tree = self._alternatives(0)
        if self._at < len(self._text):
            raise PatternError("unmatched )")
        return self._states, self._build(tree, 0), _literal(tree)

    # -- the parser: trees are tuples ---------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, what: str) -> bool:
        if self._text.startswith(what, self._at):
            self._at += len(what)
            return True
        return False

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise PatternError("ends too soon")
        self._at += 1
        return char

    def _alternatives(self, depth: int) -> tuple[object, ...]:
        if depth > MAX_DEPTH:
            raise PatternError(f"more than {MAX_DEPTH} groups in groups")
        found = [self._sequence(depth)]
        while self._take("|"):
            found.append(self._sequence(depth))
        return found[0] if len(found) == 1 else ("or", tuple(found))

    def _sequence(self, depth: int) -> tuple[object, ...]:
        found: list[tuple[object, ...]] = []
        while self._peek() not in ("", "|", ")"):
            part = self._part(depth)
            repeated = False
            while (times := self._repeat()) is not None:
                if repeated:
                    raise PatternError("a repetition of a repetition")
                part, repeated = ("times", part, *times), True
            found.append(part)
        return ("then", tuple(found))

    def _repeat(self) -> tuple[int, int | None] | None:
        times: tuple[int, int | None] | None = None
        for sign, meant in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                times = meant
                break
        else:
            if self._peek() == "{":
                times = self._counted()
        if times is not None:
            self._take("?")  # lazy: matches the same names
        return times

    def _counted(self) -> tuple[int, int | None] | None:
        """Return the bounds of `{2}`, `{2,}` or `{2,5}`; None where the brace is a character."""
        inside, closed, _ = self._text[self._at + 1 :].partition("}")
        low, comma, high = inside.partition(",")
        if not closed or not _is_number(low) or not (high == "" or _is_number(high)):
            return None
        self._at += len(inside) + 2
        least = int(low)
        most = least if not comma else int(high) if high else None
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            raise PatternError(f"a bad repetition; from 0 to {MAX_REPEAT:,} times")
        return least, most

    def _part(self, depth: int) -> tuple[object, ...]:
        char = self._next()
        match char:
            case "(":
                if self._take("?") and not self._take(":"):
                    named = self._take("P<") or self._take("<")
                    name, closed, _ = self._text[self._at :].partition(">")
                    if not named or not closed or not name.isidentifier():
                        raise PatternError("flags of groups are not supported")
                    self._at += len(name) + 1
                inner = self._alternatives(depth + 1)
                if not self._take(")"):
                    raise PatternError("unmatched (")
                return inner
            case "^":
                return (_BEGIN,)
            case "$":
                return (_END,)
            case ".":
                return ("char", _NAME)
            case "[":
                return ("char", self._class())
            case "\\":
                return self._escaped()
            case "*" | "+" | "?":
                raise PatternError(f"nothing before {char}")
        return ("char", frozenset(char))

    def _escaped(self) -> tuple[object, ...]:
        char = self._next()
        if char in "Az":
            return (_BEGIN,) if char == "A" else (_END,)
        return ("char", self._escaped_class(char))

    def _escaped_class(self, char: str) -> frozenset[str]:
        if char.lower() in _CLASSES:
            found = _CLASSES[char.lower()]
            return found if char.islower() else _NAME - found
        if char.isalnum():
            raise PatternError(f"\\{char} is not supported")
        return frozenset(char)

    def _class(self) -> frozenset[str]:
        negated = self._take("^")
        found: set[str] = set()
        first = True
        while first or self._peek() != "]":
            first = False
            if self._take("[:"):
                found |= self._posix()
                continue
            char = self._next()
            if char == "\\":
                escaped = self._escaped_class(self._next())
                if len(escaped) != 1 or self._peek() != "-":
                    found |= escaped
                    continue
                (char,) = escaped
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                end = self._next()
                if end == "\\":
                    (end,) = self._escaped_class(self._next()) or ("",)
                if end < char:
                    raise PatternError("a bad range of characters")
                found |= {one for one in _NAME if char <= one <= end}
            else:
                found.add(char)
        self._at += 1
        return _NAME - found if negated else frozenset(found)

    def _posix(self) -> frozenset[str]:
        inside, closed, _ = self._text[self._at :].partition(":]")
        negated = inside.startswith("^")
        if not closed or inside.lstrip("^") not in _POSIX:
            raise PatternError("an unknown class of characters")
        self._at += len(inside) + 2
        found = _POSIX[inside.lstrip("^")]
        return _NAME - found if negated else found

    # -- the states ---------------------------------------------------------------------------------------------------

    def _add(self, what: frozenset[str] | str, *to: int) -> int:
        if len(self._states) >= MAX_STATES:
            raise PatternError(_TOO_LARGE)
        self._states.append(_State(what, to))
        return len(self._states) - 1

    def _build(self, tree: tuple[object, ...], following: int) -> int:
        """Return the first state of a part that goes on to `following`."""
        self._parts += 1
        if self._parts > _MOST_PARTS:  # repetitions of nothing in each other need no states
            raise PatternError(_TOO_LARGE)
        match tree:
            case ("char", frozenset() as chars):
                return self._add(chars, following)
            case ("then", tuple() as parts):
                for part in reversed(parts):
                    following = self._build(part, following)
                return following
            case ("or", tuple() as parts):
                return self._add(_SPLIT, *(self._build(part, following) for part in parts))
            case ("times", tuple() as part, int() as least, most):
                return self._times(part, least, most if isinstance(most, int) else None, following)
        return self._add(str(tree[0]), following)

    def _times(self, part: tuple[object, ...], least: int, most: int | None, following: int) -> int:
        at = following
        if most is None:
            at = self._add(_SPLIT, following)
            again = self._build(part, at)
            self._states[at] = _State(_SPLIT, (again, following))
        else:
            for _ in range(most - least):
                at = self._add(_SPLIT, self._build(part, at), following)
        for _ in range(least):
            at = self._build(part, at)
        return at


def _literal(tree: tuple[object, ...]) -> str:
    """Return the longest text that every match contains; one that begins with a line break begins the name."""
    if tree[0] != "then" or not isinstance(tree[1], tuple):
        return ""
    runs = [""]
    for part in tree[1]:
        if part == (_BEGIN,):
            runs.append("\n")
        elif part[0] == "char" and len(part[1]) == 1:
            runs[-1] += next(iter(part[1]))
        else:
            runs.append("")
    found = max(runs, key=len)
    return "" if found == "\n" or "\n" in found[1:] else found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(MAX_REPEAT))
