"""Any history of publishing, switching, going back and cleaning up leaves a store as a plain list would have it."""

import itertools
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adapters_store.store import Store
from adapters_store.versions.manifest import FAMILIES, Family
from tests.adapters_store.pointers.test_families import chats, sorts


class Histories(RuleBasedStateMachine):
    """The model: versions in order of publishing, and for each family the stack of those that were live, the live one
    on top.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = Store(self.folder)
        self.versions: list[str] = []
        self.family: dict[str, Family] = {}
        self.stacks: dict[Family, list[str]] = {"mllm": [], "clip": []}

    def go_live(self, version: str) -> None:
        family = self.family[version]
        self.stacks[family] = [*(v for v in self.stacks[family] if v != version), version]

    @rule(value=st.integers(0, 5), family=st.sampled_from(FAMILIES), activate=st.booleans())
    def publish(self, value: int, family: Family, activate: bool) -> None:
        version = {"mllm": chats, "clip": sorts}[family](self.store, float(value), activate=activate)
        self.family[version] = family
        if version not in self.versions:
            self.versions.append(version)
        if activate:
            self.go_live(version)

    @precondition(lambda self: self.versions)
    @rule(data=st.data())
    def activate(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(self.versions))
        self.store.activate("amy", version)
        self.go_live(version)

    @precondition(lambda self: any(len(stack) > 1 for stack in self.stacks.values()))
    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        family = data.draw(st.sampled_from([family for family, stack in self.stacks.items() if len(stack) > 1]))
        self.stacks[family].pop()
        assert self.store.rollback("amy", family) == self.stacks[family][-1]

    @rule(keep=st.integers(0, 3))
    def gc(self, keep: int) -> None:
        removed = {name.removeprefix("amy@") for name in self.store.gc(keep)}
        self.stacks = {family: stack[max(0, len(stack) - 1 - keep) :] for family, stack in self.stacks.items()}
        kept = {*itertools.chain(*self.stacks.values()), *self.versions[max(0, len(self.versions) - keep) :]}
        assert removed == set(self.versions) - kept
        self.versions = [version for version in self.versions if version in kept]

    @invariant()
    def the_store_is_as_the_model_says_and_sound(self) -> None:
        assert self.store.versions("amy") == self.versions
        for family, stack in self.stacks.items():
            live = self.store.live("amy", family)
            assert [*live.previous, live.version] == stack if live else stack == []
        for version in self.versions:
            self.store.verify("amy", version)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
