"""What GitHub and Python-Markdown, which builds the site, read differently."""

from __future__ import annotations

import re

_MARKER = re.compile(r"(?:-|\*|\d+\.) +")
_CELL_CODE = re.compile(r"`[^`]*`")
_LIST_INDENT = 4  # of Python-Markdown, whatever the width of the marker is


def unescaped_pipes(markdown: str) -> str:
    r"""Return a page whose `\|` in the code of a table's cell is `|`."""
    return "\n".join(
        _CELL_CODE.sub(lambda code: code[0].replace("\\|", "|"), line)
        if line.startswith("|")
        else line
        for line in markdown.split("\n")
    )


def reindented(markdown: str) -> str:
    """Return a page whose lists have four columns a level, what is in them included."""
    lines, is_fenced = [], False
    levels: list[tuple[int, int]] = []  # where the text of each level began, and begins now
    after_blank = True
    for line in markdown.split("\n"):
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        if not text:
            lines.append("")
            after_blank = True
            continue
        marker = None if is_fenced else _MARKER.match(text)
        if after_blank or marker is not None or indent > 0:
            while levels and indent < levels[-1][0]:
                levels.pop()
        before, now = levels[-1] if levels else (0, 0)
        lines.append(" " * (now + max(indent - before, 0)) + text)
        is_code = indent - before >= _LIST_INDENT
        if text.startswith("```"):
            is_fenced = not is_fenced
        elif marker is not None and not is_code:
            levels.append((indent + marker.end(), now + _LIST_INDENT))
        after_blank = False
    return "\n".join(lines)
