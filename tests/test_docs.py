"""The documents: every link leads somewhere, and every section that code cites is there."""

import itertools
import re
from pathlib import Path
from typing import Final

import pytest
from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = ("adapters_store", "bases", "bench", "docs", "serve", "tests", "train", "ui")
FILES: Final = [
    str(path.relative_to(ROOT))
    for path in (*ROOT.glob("*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*")))
    if path.suffix in (".md", ".py", ".yaml")
]
PAGES: Final = sorted(name for name in FILES if name.endswith(".md"))
CITED: Final = re.compile(r"\b((?:docs/)?[\w-]+\.md)#([\w-]+)")
"""A section as code names it: docs/methods.md#pilot."""


def anchors(page: Path) -> set[str]:
    """What a link may name of a page: its headings in GitHub's spelling."""
    tokens = MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8"))
    headings = [after.content for token, after in itertools.pairwise(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[str]:
    """Where a page's links and pictures lead, those to other hosts left out."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
    inline = [child for token in tokens for child in token.children or ()]
    found = [str(child.attrs.get("href", child.attrs.get("src", ""))) for child in inline]
    return [link for link in found if link and "://" not in link and not link.startswith("mailto:")]


def lost(page: Path, link: str) -> bool:
    """Whether it leads to no file of the project, or to no section of one."""
    path, _, section = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return True
    return bool(section) and section not in anchors(target)


def test_there_are_pages_with_links() -> None:
    assert "README.md" in PAGES
    assert len(links(ROOT / "README.md")) > 5


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    page = ROOT / name
    assert [link for link in links(page) if lost(page, link)] == []


def test_every_section_that_is_cited_exists() -> None:
    cited = {
        (name, page, section)
        for name in FILES
        if name.endswith((".py", ".yaml")) and name != "tests/test_docs.py"
        for page, section in CITED.findall((ROOT / name).read_text(encoding="utf-8"))
    }
    assert len(cited) > 20
    assert [found for found in cited if lost(ROOT / "README.md", "#".join(found[1:]))] == []


def test_a_lost_link_is_found(tmp_path: Path) -> None:
    readme = ROOT / "README.md"
    assert lost(readme, "docs/methods.md#no-such-method")
    assert lost(readme, "docs/nothing.md")
    assert lost(readme, "../beside.md")
    assert not lost(readme, "docs/methods.md#pfedmoap")
