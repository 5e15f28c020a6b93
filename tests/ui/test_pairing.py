"""What a person sees belongs together: question and answer, picture and result, header and answer; in a browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("websockets", reason="the browser is driven over a web socket, and websockets is not installed")

from tests.serve.live import noise, png
from tests.ui.browser import Page, installed, opened
from tests.ui.scripted_gateway import ENGINES_WORDS, Scripted
from ui.gateway import BROKE_OFF

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium or Chrome is installed")

NEW = "0000000000000002"
REMOVE = "document.querySelector('.picture button[aria-label=\"Remove Image\"]').click()"
PICTURE = "[...document.querySelectorAll('.picture img')].some(i => i.naturalWidth === {})"


@pytest.fixture
def seen(scripted: tuple[str, Scripted], script: Scripted) -> Iterator[Page]:
    """The page in a browser, where somebody has logged in."""
    with opened(scripted[0]) as page:
        page.type("Key", "amy+cat")
        page.click("Log in")
        page.wait_for_text("answers questions")
        yield page


def field(page: Page, label: str) -> str:
    """What stands in the field of that label; empty where none is shown."""
    found = f"[...document.querySelectorAll('label')].find(l => l.innerText.trim().startsWith('{label}'))"
    return str(page.js(f"{found}?.querySelector('input,textarea')?.value ?? ''"))


def submit(page: Page) -> None:
    """Presses the enter key in the question's field."""
    page.js("[...document.querySelectorAll('textarea')].find(t => t.placeholder.startsWith('What is'))?.focus()")
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")


def asked_and_answered(page: Page) -> tuple[str, str]:
    """The question above the answer, and the one that the answer quotes."""
    return field(page, "You asked"), field(page, "Answer").partition(">")[0].removeprefix("<")


def settled(page: Page) -> None:
    page.wait_for(
        "[...document.querySelectorAll('button')].every(b => b.innerText.trim() !== 'Stop' || !b.offsetParent)"
    )
    page.wait_for("[...document.querySelectorAll('button')].some(b => b.innerText.trim() === 'Ask' && !b.disabled)")


def test_a_second_question_during_an_answer_stands_above_no_other_answer(seen: Page, script: Scripted) -> None:
    script.piece_s = 0.2
    seen.type("Question", "first?")
    seen.click("Ask")
    seen.wait_for_text("<first?> is")
    seen.js("[...document.querySelectorAll('textarea')].find(t => t.placeholder.startsWith('What is')).focus()")
    seen.call("Input.insertText", text="second?")
    submit(seen)
    assert asked_and_answered(seen) == ("first?", "first?")
    seen.wait_for_text("at length")
    settled(seen)
    assert asked_and_answered(seen) == ("first?", "first?")
    assert script.asked[-1] == "first?"
    seen.type("Question", "second?")
    assert asked_and_answered(seen) == ("first?", "first?")
    submit(seen)
    seen.wait_for_text("<second?> is")
    assert asked_and_answered(seen) == ("second?", "second?")


def test_an_answer_can_be_stopped_and_another_asked_for(seen: Page, script: Scripted) -> None:
    script.piece_s = 0.4
    seen.type("Question", "first?")
    seen.click("Ask")
    seen.wait_for_text("<first?> is")
    seen.click("Stop")
    settled(seen)
    script.piece_s = 0.0
    seen.type("Question", "second?")
    seen.click("Ask")
    seen.wait_for_text("<second?> is a question that this model answers at length")
    assert asked_and_answered(seen) == ("second?", "second?")


def test_a_new_picture_clears_what_was_said_of_the_last(seen: Page, script: Scripted, tmp_path: Path) -> None:
    for side in (64, 65, 66):
        (tmp_path / f"{side}.png").write_bytes(png(noise(side, side)))
    seen.choose_file(tmp_path / "64.png")
    seen.wait_for(PICTURE.format(64))
    seen.type("Question", "first?")
    seen.click("Ask")
    seen.wait_for_text("at length")
    settled(seen)
    seen.js(REMOVE)
    seen.wait_for("![...document.querySelectorAll('textarea,input')].some(f => f.value.includes('first?'))")
    assert field(seen, "Answered by") == ""
    seen.choose_file(tmp_path / "65.png")
    seen.wait_for(PICTURE.format(65))
    script.piece_s = 0.3
    seen.type("Question", "second?")
    seen.click("Ask")
    seen.wait_for_text("<second?> is")
    seen.choose_file(tmp_path / "66.png")
    seen.wait_for(PICTURE.format(66))
    seen.wait_for("![...document.querySelectorAll('textarea,input')].some(f => f.value.includes('second?'))")
    settled(seen)
    seen.js("new Promise(done => setTimeout(done, 1500))")  # the answer that was under way does not come back
    assert asked_and_answered(seen) == ("", "")
    assert field(seen, "Answered by") == ""


def test_a_new_picture_clears_the_classes_of_the_last(seen: Page, tmp_path: Path) -> None:
    choose_client(seen, "cat")
    seen.wait_for_text("sorts pictures")
    (tmp_path / "64.png").write_bytes(png(noise(64, 64)))
    seen.choose_file(tmp_path / "64.png")
    seen.wait_for(PICTURE.format(64))
    seen.click("Classify")
    seen.wait_for_text("circle")
    assert "own" in seen.text()
    seen.js(REMOVE)
    seen.wait_for("!document.body.innerText.includes('circle')")
    assert "Prompts behind" not in seen.text()
    assert field(seen, "Answered by") == ""


def choose_client(page: Page, client: str) -> None:
    """Chooses it in the drop-down."""
    page.js("document.querySelector('.who input').focus()")
    option = f"[...document.querySelectorAll('[role=option]')].find(o => o.innerText.trim() === '{client}')"
    page.wait_for(f"!!{option}")
    page.js(f"{option}.dispatchEvent(new MouseEvent('mousedown', {{bubbles: true}}))")


def test_the_header_follows_the_version_that_answered(seen: Page, script: Scripted) -> None:
    assert script.version in seen.text()
    script.version = NEW
    seen.type("Question", "first?")
    seen.click("Ask")
    seen.wait_for_text(f"amy@{NEW}")
    seen.wait_for(f"document.body.innerText.includes('It is version {NEW}')")
    assert "0000000000000001" not in seen.text() + field(seen, "Answered by")


def test_a_client_that_does_both_has_each_answers_version_in_its_header(
    scripted: tuple[str, Scripted], script: Scripted, tmp_path: Path
) -> None:
    header = "two answers questions (version {}) and sorts pictures into its classes (version {})"
    with opened(scripted[0]) as page:
        page.type("Key", "two")
        page.click("Log in")
        page.wait_for_text(header.format(script.version, script.sorting))
        script.version = NEW
        page.type("Question", "first?")
        page.click("Ask")
        page.wait_for_text(header.format(NEW, script.sorting))
        assert field(page, "Answered by").startswith(f"two@{NEW} ")
        script.sorting = "00000000000000c2"
        (tmp_path / "64.png").write_bytes(png(noise(64, 64)))
        page.choose_file(tmp_path / "64.png")
        page.wait_for(PICTURE.format(64))
        page.click("Classify")
        page.wait_for_text(header.format(NEW, script.sorting))
        assert field(page, "Answered by").startswith(f"two@{script.sorting} ")
        assert "circle" in page.text()


def test_an_engine_that_dies_is_told_in_a_calm_sentence(seen: Page, script: Scripted) -> None:
    script.dies = True
    seen.type("Question", "first?")
    seen.click("Ask")
    seen.wait_for_text(BROKE_OFF)
    settled(seen)
    assert ENGINES_WORDS not in seen.text()
    assert asked_and_answered(seen) == ("first?", "first?")
    script.dies = False
    seen.type("Question", "again?")
    seen.click("Ask")
    seen.wait_for_text("<again?> is a question that this model answers at length")


def test_logging_out_during_an_answer_leaves_nothing_of_it(seen: Page, script: Scripted) -> None:
    script.piece_s = 0.3
    seen.type("Question", "first?")
    seen.click("Ask")
    seen.wait_for_text("<first?> is")
    seen.click("Log out")
    seen.wait_for("!!document.querySelector('input[type=password]')")
    seen.type("Key", "amy")
    seen.click("Log in")
    seen.wait_for_text("answers questions")
    settled(seen)
    assert asked_and_answered(seen) == ("", "")
    assert field(seen, "Question") == ""
