"""Any history of publishing, switching, going back and cleaning up leaves a store as a plain list would have it."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adapters_store.store import Store
from tests.adapters_store.artefacts import manifest, prompt_files


class Histories(RuleBasedStateMachine):
    """The model: versions in order of publishing, and the stack of those that were live, the live one on top."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = Store(self.folder)
        self.versions: list[str] = []
        self.stack: list[str] = []

    def go_live(self, version: str) -> None:
        if self.stack[-1:] != [version]:
            self.stack = [*(v for v in self.stack if v != version), version]

    @rule(value=st.integers(0, 5), activate=st.booleans())
    def publish(self, value: int, activate: bool) -> None:
        version = self.store.publish(manifest(), prompt_files(float(value)), {}, activate=activate)
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

    @precondition(lambda self: len(self.stack) > 1)
    @rule()
    def rollback(self) -> None:
        self.stack.pop()
        assert self.store.rollback("amy") == self.stack[-1]

    @rule(keep=st.integers(0, 3))
    def gc(self, keep: int) -> None:
        removed = {name.removeprefix("amy@") for name in self.store.gc(keep)}
        self.stack = self.stack[max(0, len(self.stack) - 1 - keep) :]
        kept = {*self.stack, *self.versions[max(0, len(self.versions) - keep) :]}
        assert removed == set(self.versions) - kept
        self.versions = [version for version in self.versions if version in kept]

    @invariant()
    def the_store_is_as_the_model_says_and_sound(self) -> None:
        assert self.store.versions("amy") == self.versions
        live = self.store.live("amy")
        assert [*live.previous, live.version] == self.stack if live else self.stack == []
        for version in self.versions:
            self.store.verify("amy", version)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
