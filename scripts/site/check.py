"""Check a built site: each link leads to a file and an anchor, and nothing is loaded from the net.

python -m scripts.site.check .site
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
_LOADING_RELATIONS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch"}


class Parsed(HTMLParser):
    """The anchors, the links and the loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = {"", "__skip"}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record what an element names."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in _LOADS and _LOADS[tag] in values:
            self.loaded.append(values[_LOADS[tag]])
        if tag == "link" and _LOADING_RELATIONS & set(values.get("rel", "").split()):
            self.loaded.append(values["href"])


def problems(site: Path) -> Iterator[str]:
    """Yield what is wrong in a site, one line for each link."""
    pages = {path: Parsed(path.read_text()) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        yield from (f"{name} loads {each}" for each in page.loaded if urlsplit(each).netloc)
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            if not target.exists():
                yield f"{name}: {link} leads to no file"
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: {link} leads to no anchor"
    for style in site.rglob("*.css"):
        text = style.read_text()
        if "@import" in text or "url(http" in text or "url(//" in text:
            yield f"{style.relative_to(site)} loads from elsewhere"


def main() -> int:
    """Print what is wrong, and return 1 if anything is."""
    found = list(problems(Path(sys.argv[1]).resolve()))
    print("\n".join(found) or "Each link leads to a page and an anchor; nothing is loaded.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
