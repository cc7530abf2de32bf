from __future__ import annotations

import json

import pytest

from engine.decoding import objects
from webhook.snapshot.files import FileProblem, policy_text, read_objects

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "host"}}


def kinds(content: str | bytes) -> list[tuple[str, str, str]]:
    content = content.encode() if isinstance(content, str) else content
    return [(one.kind, one.decoded()["metadata"]["name"], one.where) for one in read_objects(content, name="f")]


def test_yaml_documents() -> None:
    """Each document is an object; empty ones are skipped, and keep their number."""
    text = f"# nothing\n---\n---\n{json.dumps(POD)}\n---\n{json.dumps(NODE)}\n"
    assert kinds(text) == [("Pod", "a", "f, document 2"), ("Node", "host", "f, document 3")]


@pytest.mark.parametrize("as_json", [True, False])
def test_lists_are_taken_apart(as_json: bool) -> None:
    """`kubectl get -o json|yaml` prints a List."""
    listed = {"apiVersion": "v1", "kind": "List", "items": [POD, NODE]}
    text = json.dumps(listed) if as_json else "---\n" + json.dumps(listed)
    prefix = "f" if as_json else "f, document 1"
    assert kinds(text) == [("Pod", "a", f"{prefix}, item 1"), ("Node", "host", f"{prefix}, item 2")]


def test_items_of_a_typed_list_need_no_kind() -> None:
    """What the API server itself answers (`kubectl get --raw`): the list says what its items are."""
    listed = {"apiVersion": "batch/v1", "kind": "JobList", "items": [{"metadata": {"name": "j"}}]}
    (one,) = read_objects(json.dumps(listed).encode(), name="f")
    assert (one.group, one.version, one.kind) == ("batch", "v1", "Job")


def test_json_values_in_a_row() -> None:
    """`kubectl get --watch -o json` prints one object after the other."""
    text = f"{json.dumps(POD)}\n{json.dumps(NODE, indent=2)}  "
    assert kinds(text) == [("Pod", "a", "f, document 1"), ("Node", "host", "f, document 2")]


def test_byte_order_marks_are_skipped() -> None:
    """Editors on Windows write them."""
    assert kinds(b"\xef\xbb\xbf" + json.dumps(POD).encode()) == [("Pod", "a", "f")]
    assert kinds(b"\xef\xbb\xbfapiVersion: v1\nkind: Pod\nmetadata: {name: a}") == [("Pod", "a", "f, document 1")]


def test_timestamps_can_be_projected_from_yaml() -> None:
    """An unquoted timestamp stays the text that the decoders expect."""
    text = "apiVersion: v1\nkind: Node\nmetadata: {name: host, creationTimestamp: 2026-11-21T08:00:00Z}\n"
    (one,) = read_objects(text.encode(), name="f")
    assert objects.node(one.source).settled_at > 0


def test_the_same_object_from_json_and_yaml_is_the_same() -> None:
    """The two ways into a projection agree."""
    body = {**NODE, "status": {"allocatable": {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": 8}}}
    (raw,) = read_objects(json.dumps(body).encode(), name="f")
    (parsed,) = read_objects(b"---\n" + json.dumps(body).encode(), name="f")
    assert objects.node(raw.source) == objects.node(parsed.source)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"just text", 'f, document 1: not a Kubernetes object but "just text"'),
        (b"- a\n- b\n", "f, document 1: not a Kubernetes object but a list"),
        (b"apiVersion: v1\nkind: List\nitems: [null]\n", "f, document 1, item 1: not a Kubernetes object but null"),
        (b"[1]", "f: not a Kubernetes object: expected an object, got a list"),
        (b"kind: Pod", "f, document 1: not a Kubernetes object: it needs apiVersion and kind"),
        (b"apiVersion: v1\nkind: 5", "f, document 1: not a Kubernetes object: kind: expected text, got a whole number"),
        (
            b'{"apiVersion": 1, "kind": "Pod"}',
            "f: not a Kubernetes object: apiVersion: expected text, got a whole number",
        ),
        (b"\xff\xfe\x00", "f: not UTF-8 text (byte 1)"),
        (b"a: [", "f, document 1, line 2, column 1: not valid YAML"),
        (b"---\n---\nb: {", "f, document 2, line"),
        (b'{"apiVersion": "v1", ', "f, document 1, line 2, column 1: not valid YAML"),
        (b'{"apiVersion": "v1", "kind": "List", "items": [5]}', "f, item 1: not a Kubernetes object"),
        (b'{"apiVersion": "v1", "kind": "List", "items": [{}]}', "f, item 1: not a Kubernetes object: it needs"),
        (
            b'{"kind":"List","apiVersion":"v1","items":[{"kind":"List","apiVersion":"v1","items":[]}]}',
            "a list in a list",
        ),
        (b"[" * 100_000, "nested deeper than"),
        (b'{"a":' * 100_000, "nested deeper than"),
    ],
)
def test_what_cannot_be_read(content: bytes, problem: str) -> None:
    """One line with file, document and item; never a trace."""
    with pytest.raises(FileProblem) as caught:
        read_objects(content, name="f")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_object_that_is_too_deep_is_refused() -> None:
    """Also where the JSON parser would take it."""
    deep = b'{"apiVersion":"v1","kind":"Pod","spec":' + b'{"a":' * 200 + b"1" + b"}" * 201
    (one,) = read_objects(deep, name="f")
    with pytest.raises(FileProblem, match="nested deeper than 64 levels"):
        one.decoded()


def test_decoded_objects_are_nobody_elses() -> None:
    """Aliases share parts of a document; who changes one object changes no other."""
    text = b"apiVersion: v1\nkind: Pod\nmetadata: &m {name: a}\nspec: *m\n"
    (one,) = read_objects(text, name="f")
    found = one.decoded()
    found["metadata"]["name"] = "b"
    assert (found["spec"], one.decoded()["metadata"]) == ({"name": "a"}, {"name": "a"})


CONFIG_MAP = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: topogate-policy}\ndata:\n  policy.yaml: |\n    mode: off\n"
)


@pytest.mark.parametrize(
    "content",
    [
        CONFIG_MAP,
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {}\n---\n" + CONFIG_MAP,
        json.dumps(
            {
                "kind": "List",
                "apiVersion": "v1",
                "items": [
                    {
                        "kind": "ConfigMap",
                        "metadata": {"name": "topogate-policy"},
                        "data": {"policy.yaml": "mode: off\n"},
                    }
                ],
            }
        ),
        "mode: off\n",
    ],
)
def test_a_policy_is_read_from_its_file_or_its_config_map(content: str) -> None:
    """--policy and `policy check` take policy.yaml and the ConfigMap, alone, among others, or in a list."""
    assert policy_text(content.encode(), name="f") == "mode: off\n"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"kind: ConfigMap\ndata: {other: x}", "no text under data[policy.yaml]"),
        (b"kind: ConfigMap\ndata: {policy.yaml: {mode: off}}", "no text under data[policy.yaml]"),
        (b"kind: ConfigMap\n", "no text under data[policy.yaml]"),
        (b"kind: ConfigMap\n---\nkind: ConfigMap\n", "2 ConfigMaps; expected one"),
        (b"mode: \xff", "not UTF-8"),
    ],
)
def test_config_maps_without_a_policy(content: bytes, problem: str) -> None:
    """A clear line instead of the complaints of a parser that was given the wrong thing."""
    with pytest.raises(FileProblem, match="f: ") as caught:
        policy_text(content, name="f")
    assert problem in str(caught.value)


def test_broken_policies_are_left_to_the_policy_parser() -> None:
    """It says more about them."""
    assert policy_text(b"mode: [", name="f") == "mode: ["
