"""The structure of the code: rooms with a charter, no loose files, no class name with two meanings, no circles."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from engine.decoding import wire

ROOT = Path(__file__).parents[3]
LOOSE = {"engine/__init__.py", "engine/metrics.py", "webhook/__init__.py", "webhook/cli.py"}
FILES = sorted(
    path.relative_to(ROOT) for part in ("engine", "webhook", "certs") for path in (ROOT / part).rglob("*.py")
)
ROOMS = sorted({path.parent for path in FILES if str(path) not in LOOSE})
# The structs of the API's own objects keep their names, and so do the models of a published JSON Schema.
NAMED_BY_OTHERS = {"engine/decoding/wire.py", "webhook/simulate/model.py", "webhook/queries/model.py"}
MOST_FILES = 15
MOST_FLOORS = {"engine": 8, "webhook": 6}


def tree(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def modules() -> dict[str, Path]:
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}


def imports() -> dict[Path, set[Path]]:
    """The files of the product that each file imports, type checking included."""
    known = modules()
    found: dict[Path, set[Path]] = defaultdict(set)
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    target = known.get(f"{node.module}.{alias.name}") or known.get(node.module)
                    if target is not None and target != path:
                        found[path].add(target)
            elif isinstance(node, ast.Import):
                found[path] |= {known[alias.name] for alias in node.names if alias.name in known}
    return found


def room(path: Path) -> str:
    return str(path) if str(path) in LOOSE else str(path.parent)


def test_every_file_stands_in_a_room() -> None:
    """Beside the rooms there are the metrics of the engine and the command line."""
    loose = {str(path) for path in FILES if len(path.parts) == (2 if path.parts[0] != "certs" else 1)}
    assert {path for path in loose if not path.startswith("certs/")} == LOOSE
    assert all(len(path.parts) <= 3 for path in FILES)


@pytest.mark.parametrize("at", ROOMS, ids=str)
def test_a_room_can_be_overlooked(at: Path) -> None:
    """Three to fifteen files; a room that grows past that is divided."""
    files = [path for path in FILES if path.parent == at and path.name != "__init__.py"]
    assert 3 <= len(files) <= MOST_FILES


@pytest.mark.parametrize("at", ROOMS, ids=str)
def test_a_room_opens_with_its_charter(at: Path) -> None:
    """Its `__init__` is one docstring: others import from the module that defines a name."""
    body = tree(at / "__init__.py").body
    assert len(body) == 1
    charter = ast.get_docstring(tree(at / "__init__.py"))
    assert charter is not None
    assert charter.splitlines()[0].endswith(".")


def test_the_architecture_page_has_the_charters() -> None:
    """Its table names every room, with the first line of the room's `__init__`."""
    page = (ROOT / "docs/contributor/architecture.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z/]+)/` \| (.+) \|$", page, re.MULTILINE))
    charters = {str(at): (ast.get_docstring(tree(at / "__init__.py")) or "").splitlines()[0] for at in ROOMS}
    assert rows == charters, "write the charters into the table of docs/contributor/architecture.md"


def test_a_class_name_has_one_meaning() -> None:
    """No public class has the name of another one."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        if str(path) in NAMED_BY_OTHERS:
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                by_name[node.name].append(str(path))
    assert {name: paths for name, paths in by_name.items() if len(paths) > 1} == {}


def test_no_files_import_each_other_in_a_circle() -> None:
    """A file can be read with nothing in mind but those that it imports."""
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        circle: list[Path] = error.args[1]
        pytest.fail(" -> ".join(str(path) for path in circle))


@pytest.mark.parametrize("package", MOST_FLOORS)
def test_the_house_has_few_floors(package: str) -> None:
    """The longest chain of rooms that import each other, within a package."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for path, others in imports().items():
        if path.parts[0] == package:
            rooms[room(path)] |= {room(one) for one in others if one.parts[0] == package} - {room(path)}
    floors: dict[str, int] = {}
    for one in TopologicalSorter(rooms).static_order():
        floors[one] = 1 + max((floors[below] for below in rooms.get(one, ())), default=0)
    assert max(floors.values()) <= MOST_FLOORS[package], floors


def test_the_contracts_of_the_linter_name_every_room() -> None:
    """A new room gets a place in the order of the layers."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    orders = [part.partition("]\n")[0] for part in text.split('type = "layers"\n')[1:]]
    named = {word for order in orders for word in order.replace('"', " ").replace(",", " ").split() if "." in word}
    expected = {".".join(at.parts) for at in ROOMS if at.parts != ("certs",)} | {"engine.metrics", "webhook.cli"}
    assert named == expected


def first_uses(path: Path) -> list[str]:
    """Return where msgspec may meet a type for the first time in a call, and not while the file is imported."""
    module = tree(path)
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.Lambda)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call)]
    made = {
        ast.unparse(one.args[0]) for one in calls if called(one) == "Decoder" and id(one) not in inside and one.args
    }
    found = []
    for call in calls:
        kinds = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "type"]
        if called(call) == "convert" and len(call.args) > 1:
            kinds.append(ast.unparse(call.args[1]))
        known = called(call) not in ("decode", "convert") or all(
            kind in made or kind.endswith(".type") or kind == "msgspec.Raw" for kind in kinds
        )
        if not known or (called(call) == "Decoder" and id(call) in inside):
            found.append(f"{path}:{call.lineno}: {ast.unparse(call)}")
    return found


def called(call: ast.Call) -> str:
    """Return the name of what is called; none for a method of a base class, which is not msgspec's."""
    if isinstance(call.func, ast.Attribute):
        return "" if ast.unparse(call.func.value) == "super()" else call.func.attr
    return getattr(call.func, "id", "")


def test_types_are_read_while_files_are_imported() -> None:
    """Two threads that are the first to decode a type crash the process: msgspec reads its fields only then."""
    wire_itself = Path(wire.__file__).relative_to(ROOT)  # gets its types from its callers: the next test
    assert [one for path in FILES if path != wire_itself for one in first_uses(path)] == []


def test_all_that_the_one_decoder_for_any_type_decodes_is_read_before() -> None:
    """`wire.decode` gets its types from its callers: each has a decoder that was made with the file."""
    wanted = {
        getattr(wire, call.args[0].attr)
        for path in FILES
        for call in ast.walk(tree(path))
        if isinstance(call, ast.Call)
        and called(call) == "decode"
        and call.args
        and isinstance(call.args[0], ast.Attribute)
        and ast.unparse(call.args[0].value) == "wire"
    }
    assert wanted
    assert wanted - set(wire._KINDS) == set()
