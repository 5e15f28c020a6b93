"""Takes the README's picture: a person's question about a picture, answered, in a real browser on a running page.

python -m tests.ui.screenshot --page http://127.0.0.1:7860 --client ID --image FILE --question TEXT --out docs/ui.png
The key is read from the variable FEDTAILOR_KEY.
"""

import argparse
import os
import time
from pathlib import Path

from tests.ui.browser import Page, opened


def ask(page: Page, key: str, client: str, image: Path, question: str) -> None:
    """Logs in, chooses the client, and asks; returns once the answer is complete."""
    page.type("Key", key)
    page.click("Log in")
    page.wait_for_text("It is version")
    if f"{client} answers" not in page.text():
        page.js("document.querySelector('.who input').focus()")
        page.wait_for(f"[...document.querySelectorAll('[role=option]')].some(o => o.innerText.trim() === '{client}')")
        option = f"[...document.querySelectorAll('[role=option]')].find(o => o.innerText.trim() === '{client}')"
        page.js(f"{option}.dispatchEvent(new MouseEvent('mousedown', {{bubbles: true}}))")
        page.wait_for_text(f"{client} answers")
    page.choose_file(image)
    page.wait_for("[...document.querySelectorAll('.picture img')].some(i => i.naturalWidth > 0)")
    page.type("Question", question)
    page.click("Ask")
    page.wait_for_text(f"{client}@")
    settled, answer = 0, ""
    while settled < 4:  # a second without a new piece
        time.sleep(0.25)
        now = str(page.js("[...document.querySelectorAll('textarea')].map(t => t.value).join('|')"))
        settled, answer = (settled + 1, answer) if now == answer else (0, now)


def main() -> None:
    """One screenshot, of the size it is shown at."""
    options = argparse.ArgumentParser(prog="python -m tests.ui.screenshot", description=__doc__)
    options.add_argument("--page", default="http://127.0.0.1:7860")
    options.add_argument("--client", required=True)
    options.add_argument("--image", type=Path, required=True)
    options.add_argument("--question", default="What is in the picture?")
    options.add_argument("--out", type=Path, required=True)
    given = options.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with opened(given.page) as page:
        ask(page, os.environ["FEDTAILOR_KEY"], given.client, given.image.resolve(), given.question)
        page.js("document.activeElement?.blur()")
        time.sleep(0.5)
        page.screenshot(given.out)
    print(f"{given.out}: {given.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
