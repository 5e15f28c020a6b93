"""Programs of somebody else's, in a process that ends where they do not."""

import time

import pytest

from adapters_store.store import Store, StoreError
from adapters_store.templates.sandbox import (
    CPU_S,
    SAMPLE,
    SPECIAL,
    Sandbox,
    TemplateExceededError,
    TemplateFailedError,
)
from tests.adapters_store.artefacts import lora_files, manifest

PLAIN = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
LOOPS = "".join(f"{{% for {x} in range(99999) %}}" for x in "abc") + "x" + "{% endfor %}" * 3
EXCEEDING = {
    "loops": LOOPS,
    "memory": "{{ 'a' * 10 ** 10 }}",
    "one long call": "{{ ('a' * 3000000) | wordwrap(1) | length }}",
    "a huge number": "{{ (10 ** (10 ** 8)) > 1 }}",
}
FAILING = {
    "syntax": "{% broken",
    "its own error": "{{ raise_exception('only users may speak') }}",
    "objects": "{{ ''.__class__.__base__.__subclasses__() }}",
    "depth": "{{" + "(" * 5000 + "1" + ")" * 5000 + "}}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "length": "{{ 'x' * 5000000 }}",
}


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    """One for all tests, as the gateway's is for all templates."""
    return Sandbox()


@pytest.mark.parametrize("name", EXCEEDING)
def test_a_template_that_takes_too_much_is_ended_and_the_next_one_is_rendered(sandbox: Sandbox, name: str) -> None:
    began = time.process_time()
    with pytest.raises(TemplateExceededError, match="took more than"):
        sandbox.render(EXCEEDING[name], SAMPLE, SPECIAL)
    assert time.process_time() - began < CPU_S  # none of it was spent here
    assert "a-text-to-find" in sandbox.render(PLAIN, SAMPLE, SPECIAL)


@pytest.mark.parametrize("name", FAILING)
def test_a_template_that_fails_says_why_and_the_next_one_is_rendered(sandbox: Sandbox, name: str) -> None:
    with pytest.raises(TemplateFailedError) as failed:
        sandbox.render(FAILING[name], SAMPLE, SPECIAL)
    assert len(str(failed.value)) <= 500
    assert sandbox.render(PLAIN, SAMPLE, SPECIAL).startswith("<s>user: ")


def test_the_process_sees_nothing_of_the_hosts_environment(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "of the host")
    sandbox.close()
    sandbox.render(PLAIN, SAMPLE, SPECIAL)
    assert sandbox._process is not None
    with open(f"/proc/{sandbox._process.pid}/environ", "rb") as environment:
        assert b"A_SECRET" not in environment.read()


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (LOOPS, "processor time"),
        ("{% broken", "fails over a plain question"),
        ("always the same", "leaves out what the user says"),
    ],
)
def test_such_a_template_is_not_published(tmp_path: object, template: str, why: str) -> None:
    store = Store(str(tmp_path))
    with pytest.raises(StoreError, match=why):
        store.publish(manifest(family="mllm", prompt_template=template), lora_files(), {}, activate=True)
    assert store.clients() == []
