"""Find links of a built site that lead nowhere, and what its pages load from elsewhere: `make docs` runs this."""

import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

LOADING = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href"), ("use", "href")}
"""What a browser fetches as soon as the page is shown."""
UNLOADED = {"canonical", "search", "index", "next", "prev", "author", "copyright"}
"""Kinds of `link` that only name another page."""


class Link(NamedTuple):
    tag: str
    target: str
    loads: bool


class Page(NamedTuple):
    links: list[Link]
    ids: set[str]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page([], set())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.page.ids.update(given[name] for name in ("id", "name") if name in given)
        for name in ("href", "src"):
            if name in given:
                loads = (tag, name) in LOADING and given.get("rel", "") not in UNLOADED
                self.page.links.append(Link(tag, given[name], loads))


@cache
def read(file: Path) -> Page:
    """Return the links and the targets of a page."""
    reader = _Reader()
    reader.feed(file.read_text())
    return reader.page


def _pages(site: Path) -> list[Path]:
    """Return the pages, without the templates among the theme's files."""
    return [file for file in sorted(site.rglob("*.html")) if "_static" not in file.parts]


def broken_links(site: Path) -> Iterator[str]:
    """Yield each link of the site to a file or an anchor that does not exist."""
    for file in _pages(site):
        for link in read(file).links:
            parts = urlsplit(link.target)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            shown = f"{file.relative_to(site)}: {link.target}"
            if not target.is_file():
                yield f"{shown}: no such file"
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in read(target).ids:
                yield f"{shown}: no such anchor"


def loaded_from_elsewhere(site: Path) -> Iterator[str]:
    """Yield each address of another host that a page or a style sheet loads."""
    for file in _pages(site):
        for link in read(file).links:
            if link.loads and (urlsplit(link.target).netloc or urlsplit(link.target).scheme in {"http", "https"}):
                yield f"{file.relative_to(site)}: {link.target}"
    for file in sorted(site.rglob("*.css")):
        for address in re.findall(r"(?:url\(|@import\s+)['\"]?((?:https?:)?//[^'\")\s]+)", file.read_text()):
            yield f"{file.relative_to(site)}: {address}"


def main(site: Path) -> int:
    wrong = [*broken_links(site), *(f"loaded from another host: {each}" for each in loaded_from_elsewhere(site))]
    for each in wrong:
        print(each)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
