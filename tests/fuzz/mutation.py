"""Changes to valid inputs: JSON values that stay JSON, with words that mean something to us, and bytes that do not.

One step finds its place by walking down from the root at random, so that it costs as much as the value is deep.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from engine.api import names
from engine.resources.names import KOORDINATOR

MAX_COPIES: Final = 40  # of one item or key: inputs stay below some 100 KB, where the limit of 100 ms is meant

DEEPER: Final = 0.7

_ALIASES: Final = [key for aliases in names.ALIASES.values() for key in aliases]
KEYS: Final = sorted(
    {
        *names.REQUEST_KEYS,
        *names.OWNED_ANNOTATIONS,
        *names.OWNED_LABELS,
        *_ALIASES,
        *names.EXCLUSIVE_TOPOLOGY,
        names.KUEUE_QUEUE,
        names.POD_GROUP_NAME,
        names.POD_GROUP_MIN,
        names.COMPLETION_INDEX,
        names.DEVICE_ALLOCATED,
        "topogate.dev/",
        "topogate.dev/requiretopology",
        "app",
    }
)
RESOURCES: Final = [
    "nvidia.com/gpu",
    "amd.com/gpu",
    *sorted(KOORDINATOR),
    "cpu",
    "memory",
    "pods",
    "hugepages-2Mi",
    "x/y",
]
LEVELS: Final = ["rack", "block", "host", "auto", "default", "cloud.provider.com/topology-rack"]
WORDS: Final = [
    *LEVELS,
    *(
        "true",
        "false",
        "main",
        "spec.template",
        names.GATE,
        "system:masters",
        "0-3,8",
        "3-0",
        "0-99999999999",
        "rack=4,host=2",
    ),
    *("10m", "-5m", "1h1h", "999999999h", "0s", "2026-11-23T00:00:00Z", "2026-13-45T99:99:99Z", "0001-01-01T00:00:00Z"),
    *(
        "0",
        "-1",
        "1",
        "4",
        "8",
        "007",
        "0x10",
        "1e3",
        "1e999",
        "NaN",
        "9223372036854775808",
        "0.5",
        "1Ki",
        "1E",
        "50",
        "150",
    ),
    *(
        "",
        " ",
        "\x00",
        "\n",
        "\x1b[31m",
        "\u202eabc",
        "\u200b",
        "\u0663",
        "\U0001f600",
        "%s",
        "{0}",
        "../..",
        "a/b/c",
        '{"gpu":[]}',
    ),
    *("x" * 64, "x" * 254, "y" * 5_000),
]
NUMBERS: Final[list[Any]] = [
    *(0, 1, 2, 3, 4, 8, 64, -1, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 10**25),
    *(0.5, -0.0, 1e300, True, False),
]
SHAPES: Final[list[Any]] = [None, [], {}, [None], [[]], [{}], {"": None}, {"a": {"a": {}}}, [1, "a"], {"name": None}]
OWNERS: Final = [
    ("batch/v1", "Job"),
    ("apps/v1", "DaemonSet"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("", ""),
    ("a/b/c", "X"),
]
SPLICES: Final = [
    b"\xff",
    b"\x00",
    b"\\ud800",
    b'"a":1,',
    b"1e999",
    b"-0",
    b"[[[[",
    b"{",
    b"}",
    b'"',
    b",",
    b"\xe2\x80\xae",
    b"- ",
    b"&a *a",
    b"!!x",
]

Place = tuple[Any, Any]  # a container, and the key or index of the value in it


class Mutator:
    """Draws from one source of chance; `donors` are values of which parts are put into others."""

    def __init__(self, rng: random.Random, donors: Sequence[Any] = ()) -> None:
        self.rng = rng
        self._donors = donors
        self._steps: list[tuple[Callable[[Any], None], float]] = [
            (self._drop, 3.0),
            (self._replace, 5.0),
            (self._move, 2.0),
            (self._multiply, 1.5),
            (self._wrap, 1.0),
            (self._tweak, 4.0),
            (self._known_words, 6.0),
            (self._amount, 2.5),
        ]

    def changed(self, value: Any) -> Any:
        """A copy of a JSON value after some steps."""
        box = [copy.deepcopy(value)]
        steps, weights = zip(*self._steps, strict=True)
        for step in self.rng.choices(steps, weights, k=self.rng.choice((1, 1, 1, 2, 5))):
            step(box)
        return box[0]

    def garbled(self, data: bytes) -> bytes:
        """Bytes as no encoder writes them."""
        found = bytearray(data)
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            at = self.rng.randrange(len(found) + 1)
            match self.rng.randrange(6):
                case 0:
                    found[at : at + 1] = bytes([self.rng.randrange(256)])
                case 1:
                    del found[at : at + self.rng.choice((1, 3, 50))]
                case 2:
                    found[at:at] = self.rng.choice(SPLICES)
                case 3:
                    found[at:at] = found[at : at + self.rng.choice((1, 20, 300))]
                case 4:
                    del found[at:]
                case _:
                    found[at:at] = b'{"a":' * self.rng.choice((2, 200))
        return bytes(found)

    def noise(self) -> bytes:
        """Bytes without any meaning."""
        return self.rng.randbytes(self.rng.choice((0, 1, 10, 200)))

    def odd_value(self) -> Any:
        kind = self.rng.random()
        if kind < 0.45:
            return self.rng.choice(WORDS)
        return copy.deepcopy(self.rng.choice(NUMBERS if kind < 0.75 else SHAPES))

    def _place(self, box: Any, wanted: Callable[[Any], bool] = lambda _value: True) -> Place | None:
        """A value somewhere below that is wanted, rather a deep one: there are more of these."""
        found: Place | None = None
        node = box
        while isinstance(node, dict | list) and node:
            keys = list(node) if isinstance(node, dict) else range(len(node))
            key = self.rng.choice(keys)
            if not isinstance(node[key], dict | list):
                key = self.rng.choice(keys)
            if wanted(node[key]) and (found is None or self.rng.random() < DEEPER):
                found = (node, key)
            node = node[key]
        return found

    def _drop(self, box: Any) -> None:
        place = self._place(box)
        if place is not None and place[0] is not box:
            del place[0][place[1]]

    def _replace(self, box: Any) -> None:
        if (place := self._place(box)) is not None:
            place[0][place[1]] = self.odd_value()

    def _move(self, box: Any) -> None:
        donor = [self.rng.choice(self._donors)] if self._donors and self.rng.random() < 0.5 else box
        source, target = self._place(donor), self._place(box)
        if source is not None and target is not None:
            target[0][target[1]] = copy.deepcopy(source[0][source[1]])

    def _multiply(self, box: Any) -> None:
        place = self._place(box, lambda value: isinstance(value, dict | list | str) and bool(value))
        if place is None:
            return
        value, times = place[0][place[1]], self.rng.choice((2, 3, MAX_COPIES))
        if isinstance(value, dict):
            key = self.rng.choice(list(value))
            for number in range(times):
                value[f"{key}{number}"] = copy.deepcopy(value[key])
        elif isinstance(value, list):
            value += [copy.deepcopy(self.rng.choice(value)) for _ in range(times)]
        else:
            place[0][place[1]] = value * times

    def _wrap(self, box: Any) -> None:
        if (place := self._place(box)) is None:
            return
        value = place[0][place[1]]
        for _ in range(self.rng.choice((1, 2, 60))):
            value = [value] if self.rng.random() < 0.5 else {self.rng.choice(("a", "spec", "metadata")): value}
        place[0][place[1]] = value

    def _tweak(self, box: Any) -> None:
        """Another value of the same type."""
        place = self._place(box, lambda value: isinstance(value, str | int | float))
        if place is None:
            return
        value = place[0][place[1]]
        if isinstance(value, bool):
            value = not value
        elif isinstance(value, int):
            value += self.rng.choice((-1, 1, 100, -100, 2**31))
        elif isinstance(value, float):
            value = -value
        else:
            at = self.rng.randrange(len(value) + 1)
            match self.rng.randrange(4):
                case 0:
                    value = value[:at] + self.rng.choice(WORDS) + value[at:]
                case 1:
                    value = value[:at] + value[at + 1 :]
                case 2:
                    value = value.swapcase()
                case _:
                    value = self.rng.choice(WORDS)
        place[0][place[1]] = value

    def _known_words(self, box: Any) -> None:
        """Something that we read, at an object or at one of its templates."""
        place = self._place(box, lambda value: isinstance(value, dict) and ("spec" in value or "metadata" in value))
        if place is None:
            return
        where = place[0][place[1]]
        meta = where.setdefault("metadata", {})
        if not isinstance(meta, dict):
            return
        kind = self.rng.random()
        if kind < 0.65:
            entries = meta.setdefault("labels" if self.rng.random() < 0.25 else "annotations", {})
            if isinstance(entries, dict):
                entries[self.rng.choice(KEYS)] = self.rng.choice(LEVELS if self.rng.random() < 0.4 else WORDS)
        elif kind < 0.75:
            spec = where.setdefault("spec", {})
            gates = spec.setdefault("schedulingGates", []) if isinstance(spec, dict) else None
            if isinstance(gates, list):
                gates.append({"name": self.rng.choice((names.GATE, "x/y", "kueue.x-k8s.io/topology"))})
        elif kind < 0.85:
            version, owner = self.rng.choice(OWNERS)
            uid = self.rng.choice(("3c7f8a52-0000-4000-8000-000000000001", "", "u", "a/b"))
            controller = self.rng.choice((True, True, False, None))
            meta["ownerReferences"] = [
                {"apiVersion": version, "kind": owner, "name": "train", "uid": uid, "controller": controller}
            ]
        else:
            field = self.rng.choice(
                ("name", "generateName", "namespace", "uid", "deletionTimestamp", "creationTimestamp")
            )
            meta[field] = self.rng.choice(WORDS)

    def _amount(self, box: Any) -> None:
        """An amount of a resource."""
        place = self._place(
            box, lambda value: isinstance(value, dict) and bool({"limits", "requests", "image", "cpu"} & value.keys())
        )
        if place is None:
            return
        where = place[0][place[1]]
        for step in ("resources",) if "image" in where else ():
            where = where.setdefault(step, {})
        if isinstance(where, dict) and "cpu" not in where:
            where = where.setdefault(self.rng.choice(("limits", "requests")), {})
        if isinstance(where, dict):
            where[self.rng.choice(RESOURCES)] = self.rng.choice((*WORDS, *NUMBERS))
