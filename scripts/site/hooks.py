"""What mkdocs calls while it builds the site: see mkdocs.yml."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from scripts.site import markdown as adapted
from scripts.site import pages

ROOT = Path(__file__).parent.parent.parent
REPOSITORY = "https://github.com/cpreplicate/cpreplicate/blob/main"
_LINK = re.compile(r"(\]\()((?:\.\./)+[^)#\s]+)((?:#[^)\s]*)?\))")
_LISTED = {"Commands": pages.COMMANDS, "Decisions": "adr", "Lab": "lab"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation by the pages of folders that mkdocs.yml leaves empty."""
    names = [
        *pages.generated(),
        *(str(p.relative_to(pages.DOCS)) for p in pages.DOCS.rglob("*.md")),
    ]
    for section in config.nav or ():
        for entry in _entries(section):
            for title, folder in _LISTED.items():
                if title in entry:
                    listed = sorted(n for n in names if str(Path(n).parent) == folder)
                    index = f"{folder}/README.md"
                    entry[title] = [index, *(name for name in listed if name != index)]
    return config


def _entries(section: dict[str, Any]) -> list[dict[str, Any]]:
    entries = next(iter(section.values()))
    return [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are generated from the code."""
    for path, text in pages.generated().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_settings: Any) -> str:
    """Adapt what GitHub renders and Python-Markdown does not, and links that leave docs/."""
    folder = (pages.DOCS / page.file.src_uri).parent
    linked = _LINK.sub(lambda match: _outward(match, folder), markdown)
    return adapted.reindented(adapted.unescaped_pipes(linked))


def _outward(match: re.Match[str], folder: Path) -> str:
    """Return a link to the repository for one to a file outside docs/, which must exist."""
    target = Path(os.path.normpath(folder / match[2]))
    if target.is_relative_to(pages.DOCS):
        return match[0]
    if not target.exists():
        raise PluginError(f"{folder}: the link to {match[2]} leads nowhere")
    return f"{match[1]}{REPOSITORY}/{target.relative_to(ROOT)}{match[3]}"
