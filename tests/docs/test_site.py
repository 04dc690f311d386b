"""The documentation site builds without warnings, its links work, and it loads nothing from another host."""

import re
from pathlib import Path

import pytest

from scripts.site_links import broken_links, loaded_from_elsewhere

SECTIONS = ["start", "write", "connect", "run", "operate", "query", "migrate", "internals", "reference"]


def test_every_link_of_the_site_leads_to_a_page_and_a_heading(site: Path) -> None:
    assert list(broken_links(site)) == []


def test_the_site_loads_nothing_from_another_host(site: Path) -> None:
    assert list(loaded_from_elsewhere(site)) == []


def test_the_start_page_leads_to_every_section(site: Path) -> None:
    start = (site / "index.html").read_text()
    assert [section for section in SECTIONS if f'href="{section}/index.html"' not in start] == []


def test_every_page_ends_with_what_to_read_next() -> None:
    docs = Path(__file__).parents[2] / "docs"
    pages = [page for page in docs.rglob("*.md") if page.name not in {"index.md", "error-notes.md"}]
    generated = {"settings", "cli", "compatibility"}
    without = [
        str(page.relative_to(docs))
        for page in sorted(pages)
        if page.parent.name != "api" and page.stem not in generated and "\n## Next\n" not in page.read_text()
    ]
    assert without == []


class TestTheLinkChecker:
    @pytest.fixture
    def pages(self, tmp_path: Path) -> Path:
        (tmp_path / "a.html").write_text('<h1 id="top">A</h1><a href="b.html#there">b</a><img src="a.png">')
        (tmp_path / "b.html").write_text(
            '<h2 id="there">B</h2><a href="a.html#top">a</a><a href="https://x.org/">x</a>'
        )
        (tmp_path / "a.png").write_bytes(b"")
        return tmp_path

    def test_a_sound_site_passes(self, pages: Path) -> None:
        assert [*broken_links(pages), *loaded_from_elsewhere(pages)] == []

    def test_a_missing_file_is_reported(self, pages: Path) -> None:
        (pages / "a.png").unlink()
        assert list(broken_links(pages)) == ["a.html: a.png: no such file"]

    def test_a_missing_anchor_is_reported(self, pages: Path) -> None:
        (pages / "c.html").write_text('<a href="b.html#elsewhere">b</a><a href="#nowhere">c</a>')
        assert list(broken_links(pages)) == [
            "c.html: b.html#elsewhere: no such anchor",
            "c.html: #nowhere: no such anchor",
        ]

    @pytest.mark.parametrize(
        "loads",
        [
            '<script src="https://cdn.example.org/x.js"></script>',
            '<link rel="stylesheet" href="//fonts.example.org/css">',
            '<img src="http://example.org/badge.svg">',
        ],
    )
    def test_something_loaded_from_another_host_is_reported(self, pages: Path, loads: str) -> None:
        (pages / "c.html").write_text(loads)
        address = re.search(r'(?:src|href)="([^"]+)"', loads)
        assert address is not None
        assert list(loaded_from_elsewhere(pages)) == [f"c.html: {address.group(1)}"]

    def test_a_font_of_another_host_in_a_style_sheet_is_reported(self, pages: Path) -> None:
        (pages / "c.css").write_text("@font-face { src: url('https://fonts.example.org/a.woff2'); }")
        assert list(loaded_from_elsewhere(pages)) == ["c.css: https://fonts.example.org/a.woff2"]
