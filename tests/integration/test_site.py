"""The site of docs/: it builds without a warning, and each of its links leads somewhere."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

ROOT = Path(__file__).parents[2]

#: Attributes by which a page has a browser load something.
LOADS = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")}

#: How lines of a paragraph begin that should have been something else.
RAW = ("- ", "* ", "| ", "1. ", "```", "#", "<!--", "[//]:")


@dataclass
class Page(HTMLParser):
    """What a page of the site has: anchors, links, what it loads, and its paragraphs."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    paragraphs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._within = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element brings along."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        self.loaded += [found[name] for kind, name in LOADS if kind == tag and name in found]
        if tag == "p":
            self._within = True
            self.paragraphs.append("")
        elif self._within:
            self.paragraphs[-1] += "."  # what is in an element, such as code, is understood

    def handle_endtag(self, tag: str) -> None:
        """Note the end of a paragraph."""
        self._within = self._within and tag != "p"

    def handle_data(self, data: str) -> None:
        """Note what a paragraph says."""
        if self._within:
            self.paragraphs[-1] += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, as `make docs` does, from a copy."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run(  # noqa: S603 - a program of our own environment
        [zensical, "build", "--clean", "--strict", "--config-file", "mkdocs.yml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Read every page of it."""
    found = {path: Page() for path in sorted(site.rglob("*.html"))}
    for path, page in found.items():
        page.feed(path.read_text(encoding="utf-8"))
    return found


def test_every_page_is_built(pages: dict[Path, Page]) -> None:
    """Each document has a page, whose beginning leads to all the others."""
    built = {path.stem for path in pages} - {"404"}
    assert built == {path.stem for path in (ROOT / "docs").glob("*.md")}


def test_links_of_the_site_lead_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    """A link within the site names a file of it, and an anchor that is there."""
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                assert parts.scheme == "https", f"{path.name}: {link}"
                continue
            name = unquote(parts.path)
            # the page of what isn't found may be shown in any folder, so it links from the top
            begin = site if name.startswith("/") else path.parent
            target = (begin / name.lstrip("/")).resolve() if name else path
            assert target.is_file(), f"{path.name}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.name}: {link}"


def test_no_page_asks_another_host(pages: dict[Path, Page]) -> None:
    """Styles, scripts and pictures are the site's own, and no diagram needs a script that isn't."""
    for path, page in pages.items():
        assert page.loaded
        for link in page.loaded:
            assert not urlsplit(link).netloc, f"{path.name}: {link}"
    for document in (ROOT / "docs").glob("*.md"):
        assert "```mermaid" not in document.read_text(encoding="utf-8"), document.name


def test_all_markdown_is_understood(pages: dict[Path, Page]) -> None:
    """No list, table or heading of a document ends as a paragraph of signs."""
    for path, page in pages.items():
        lines = [line for text in page.paragraphs for line in text.splitlines()]
        assert not [line for line in lines if line.startswith(RAW)], path.name


def test_every_page_has_its_place() -> None:
    """The navigation has each document once, and the start leads to each by a link."""
    documents = {path.name for path in (ROOT / "docs").glob("*.md")}
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    placed = [name for entry in nav for name in _files(entry)]
    start = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")

    assert sorted(placed) == sorted(documents)
    assert not [name for name in documents - {"index.md"} if f"]({name}" not in start]


def _files(entry: dict[str, object]) -> list[str]:
    """Return the files of an entry of the navigation."""
    (below,) = entry.values()
    if isinstance(below, list):
        return [name for each in below for name in _files(each)]
    return [str(below)]
