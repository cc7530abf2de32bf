from __future__ import annotations

from collections.abc import Hashable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.api.objects import ConfigMap
from engine.cluster.store import Store

NAMES = st.sampled_from(["a", "b", "c"])


class ConvergingStore(RuleBasedStateMachine):
    """A server, a watch that lags behind it, and writes of ours whose answers come when they like."""

    def __init__(self) -> None:
        super().__init__()
        self.store: Store[ConfigMap] = Store(lambda item: item.name, index=lambda item: item.data.get("owner"))
        self.mirror: dict[Hashable, ConfigMap] = {}
        self.store.subscribe(self.hear)
        self.version = 100
        self.server: dict[str, ConfigMap] = {}
        self.backlog: list[tuple[str, ConfigMap]] = []
        self.history: list[tuple[str, ConfigMap]] = []
        self.gone: set[str] = set()  # told deleted (or out of the selector)
        self.delivered: dict[str, ConfigMap] = {}
        self.listed: tuple[list[ConfigMap], int] | None = None
        self.answers: list[ConfigMap] = []
        self.store.replace([], resource_version="100")

    def hear(self, key: Hashable, old: ConfigMap | None, new: ConfigMap | None) -> None:
        assert self.mirror.get(key) == old, "a change was lost, repeated or told out of order"
        if new is None:
            del self.mirror[key]
        else:
            self.mirror[key] = new

    def change(self, name: str, owner: str, *, visible: bool = True) -> ConfigMap:
        self.version += 1
        held = self.server.get(name)
        uid = held.uid if held else f"uid-{self.version}"
        item = ConfigMap("", name, uid, str(self.version), {"owner": owner, "visible": str(visible)})
        was_visible = held is not None and held.data["visible"] == "True"
        self.server[name] = item
        if visible:
            self.happened("MODIFIED" if was_visible else "ADDED", item)
        elif was_visible:
            self.happened("DELETED", item)
        return item

    def happened(self, kind: str, item: ConfigMap) -> None:
        self.backlog.append((kind, item))
        self.history.append((kind, item))

    @rule(name=NAMES, owner=st.sampled_from(["x", "y"]), visible=st.booleans())
    def somebody_writes(self, name: str, owner: str, visible: bool) -> None:
        self.change(name, owner, visible=visible)

    @rule(name=NAMES, owner=st.sampled_from(["x", "y"]), visible=st.booleans())
    def we_write(self, name: str, owner: str, visible: bool) -> None:
        self.answers.append(self.change(name, owner, visible=visible))

    @rule(name=NAMES)
    def somebody_deletes(self, name: str) -> None:
        held = self.server.pop(name, None)
        if held is None:
            return
        self.version += 1
        if held.data["visible"] == "True":
            self.happened("DELETED", ConfigMap("", name, held.uid, str(self.version), held.data))

    @rule(count=st.integers(1, 3))
    def the_watch_tells(self, count: int) -> None:
        for kind, item in self.backlog[:count]:
            self.store.apply(kind, item)  # type: ignore[arg-type]
            (self.gone.add if kind == "DELETED" else self.gone.discard)(item.uid)
        del self.backlog[:count]

    @rule(data=st.data())
    def an_answer_arrives(self, data: st.DataObject) -> None:
        if not self.answers:
            return
        answer = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        self.store.apply_own_write(answer)
        if answer.uid in self.gone:
            held = self.store.get(answer.name)
            assert held is None or held.uid != answer.uid, "the answer of a write raised the dead"
        else:
            self.delivered[answer.name] = answer
            self.own_writes_are_seen()

    def own_writes_are_seen(self) -> None:
        for name, answer in self.delivered.items():
            if answer.data["visible"] == "True" and self.server.get(name) == answer and answer.uid not in self.gone:
                assert self.store.get(name) == answer, "the next decision does not see our write"

    @rule()
    def a_list_is_made(self) -> None:
        visible = [item for item in self.server.values() if item.data["visible"] == "True"]
        self.listed = (visible, self.version)

    @rule()
    def the_list_arrives(self) -> None:
        """The watch that follows begins at the list's version."""
        if self.listed is None or self.listed[1] < self.store.seen:
            return
        visible, version = self.listed
        self.listed = None
        listed = {item.uid for item in visible}
        # What we wrote after the list was made is kept; what it would have to show, had it been selected, is gone.
        kept = {item.uid for item in self.delivered.values() if int(item.resource_version) > version}
        self.gone |= {item.uid for item in self.store.values() if item.uid not in listed | kept}
        self.gone -= listed  # it came back into the selection: a list of the server's proves that it lives
        self.store.replace(visible, resource_version=str(version))
        self.own_writes_are_seen()
        self.backlog = [event for event in self.history if int(event[1].resource_version) > version]

    @rule()
    def everything_arrives(self) -> None:
        while self.answers:
            self.store.apply_own_write(self.answers.pop(0))
        self.the_watch_tells(count=len(self.backlog))
        self.version += 1
        self.store.bookmark(str(self.version))
        wanted = {name: item for name, item in self.server.items() if item.data["visible"] == "True"}
        assert {item.name: item for item in self.store.values()} == wanted

    @invariant()
    def subscribers_know_what_the_store_holds(self) -> None:
        assert self.mirror == {item.name: item for item in self.store.values()}

    @invariant()
    def the_index_agrees(self) -> None:
        for owner in ("x", "y"):
            wanted = {item.name for item in self.store.values() if item.data["owner"] == owner}
            assert {item.name for item in self.store.get_by(owner)} == wanted


TestStoreConverges = ConvergingStore.TestCase
TestStoreConverges.settings = settings(max_examples=800, stateful_step_count=30, deadline=None)
