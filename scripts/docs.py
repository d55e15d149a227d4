"""Build the site in build/docs, and one file of it that a teacher sends.

Warnings, broken links and requests to other machines fail.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
import shutil
import sys
import time
import zipfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "docs"
LESSON = "memowidgets-lesson"  # the file, and the one folder in it
INLINE = {
    "script": re.compile(
        r"<script(?![^>]*\b(?:src|type=['\"]text/plain))[^>]*>(.*?)</script>", re.DOTALL
    ),
    "style": re.compile(r"<style[^>]*>(.*?)</style>", re.DOTALL),
}
SELF = "'self'"
STYLED = re.compile(r"<[a-zA-Z][^<>]*?\sstyle=\"([^\"]*)\"")
LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "link": "href",
}


# What the theme writes, and what everyone can use: the heading of a list of pages has a level, code
# that is wide is scrolled by key, each aside has a name, and the tools of a page are in a landmark.
READABLE = {
    'class="caption" role="heading"': 'class="caption" role="heading" aria-level="2"',
    '<div class="highlight"><pre>': '<div class="highlight"><pre tabindex="0">',
    '<div class="content-icon-container">': (
        '<div class="content-icon-container" role="region" aria-label="tools">'
    ),
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="all pages">',
    '<aside class="toc-drawer': '<aside aria-label="this page" class="toc-drawer',
    '<th class="head"><p></p></th>': "<td><p></p></td>",
    '<div id="search-results">': '<h1>Search</h1><div id="search-results">',
}


class Page(HTMLParser):
    """Links, loaded addresses and anchors of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the links and names of one element."""
        found = dict(attrs)
        self.anchors |= {found[name] or "" for name in ("id", "name") if name in found}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"] or "")
        wanted = found.get(LOADED.get(tag, ""))
        if wanted and found.get("rel") != "canonical":
            self.loads.append(wanted)


def build(site: Path = SITE) -> int:
    """Run Sphinx with warnings as errors, and return its exit status."""
    from sphinx.cmd.build import main

    shutil.rmtree(site, ignore_errors=True)
    trees = site.with_name(site.name + "-trees")
    arguments = ["-q", "-W", "--keep-going", "-b", "html", "-d", str(trees)]
    status: int = main([*arguments, str(ROOT / "docs"), str(site)])
    if status == 0:
        for file in site.rglob("*.html"):
            file.write_text(guarded(readable(file.read_text("utf-8"))), "utf-8")
    return status


def readable(page: str) -> str:
    """Return a page whose captions and code a screen reader and a keyboard reach."""
    for written, wanted in READABLE.items():
        page = page.replace(written, wanted)
    return page


def guarded(page: str) -> str:
    """Return a page with a policy at its head that lets it run and load what it has, and no more.

    Scripts and styles may stand in the page, or in a file of the site.
    """
    hashes = {
        name: sorted({_digest(text) for text in pattern.findall(page)})
        for name, pattern in INLINE.items()
    }
    attributes = sorted({_digest(html.unescape(text)) for text in STYLED.findall(page)})
    unsafe = ["'unsafe-hashes'", *attributes] if attributes else []
    # A worker made of a text on the page has the page's policy.
    workers = "worker-src blob:; " if "new Worker(" in page else ""
    policy = (
        "default-src 'none'; "
        f"script-src {' '.join([SELF, *hashes['script']])}; "
        f"style-src {' '.join([SELF, *hashes['style'], *unsafe])}; "
        f"img-src 'self' data:; {workers}base-uri 'none'; form-action 'self'"
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    head = re.search(r"<head[^>]*>", page)
    if head is None:
        raise ValueError("the page has no head, in which its policy could stand")
    return f"{page[: head.end()]}{meta}{page[head.end() :]}"


def _digest(text: str) -> str:
    return (
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    )


def pack(site: Path = SITE) -> Path:
    """Write the site into one file beside its folder, and return its path.

    The pages open from the folder that it unpacks into, without a server.
    """
    file = site.with_name(f"{LESSON}.zip")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for part in sorted(site.rglob("*")):
            packed.write(part, Path(LESSON) / part.relative_to(site))
    return file


def problems(site: Path = SITE) -> Iterator[str]:
    """Yield broken links, and everything that a page would load from another machine."""
    pages = {file: Page(file) for file in sorted(site.rglob("*.html"))}
    for file, page in pages.items():
        here = file.relative_to(site)
        for address in (*page.links, *page.loads):
            parts = urlsplit(address)
            if parts.scheme in {"http", "https"} or parts.netloc:
                if address in page.loads:
                    yield f"{here} loads {address} from another machine"
                continue
            if parts.scheme in {"mailto", "data"}:
                continue
            target = (
                (file.parent / unquote(parts.path)).resolve() if parts.path else file
            )
            if not target.exists():
                yield f"{here} links to {address}, which is not there"
            elif (
                target in pages and unquote(parts.fragment) not in pages[target].anchors
            ):
                yield f"{here} links to {address}, which has no such place"


def main() -> int:
    """Build and check the site, and print what is wrong."""
    started = time.monotonic()
    if status := build():
        return status
    found = list(problems())
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{SITE / 'index.html'}: built in {time.monotonic() - started:.0f} s")
    if found:
        return 1
    print(f"{pack()}: the same pages in one file, to send to a class")
    return 0


if __name__ == "__main__":
    sys.exit(main())
