from pathlib import Path

from scripts.count_lines import Lines, by_folder, count, table

SAMPLE = '''"""A module.

Of three lines.
"""

import os  # why

# a comment


class Place:
    """One line."""

    name = """no docstring
    of two lines"""

    def path(self):
        """Return
        the path.
        """
        return os.path.join(
            "a",
            # within
            "b",
        )


async def nothing():
    "Do nothing."
'''


def test_blanks_and_comments_do_not_count_and_docstrings_count_apart():
    assert count(SAMPLE) == Lines(code=10, docstrings=9)
    assert count("") == Lines(0, 0)


def summed(modules):
    return by_folder((Path(path), text) for path, text in modules.items())


def test_lines_are_summed_by_folder_and_compared():
    now = summed({"cp/a.py": "x = 1\n", "cp/in/b.py": '"""B."""\n', "cp/c.py": "y = 1"})
    assert now == {"cp": Lines(2, 0), "cp/in": Lines(0, 1), "total": Lines(2, 1)}
    before = summed({"cp/a.py": "x = 1\ny = 1\nz = 1\nz = 2", "cp/old/b.py": "x = 1"})
    rows = [row.split() for row in table(now, before)]
    assert rows[1:] == [
        ["cp", "2", "-2", "0", "+0"],
        ["cp/in", "0", "+0", "1", "+1"],
        ["cp/old", "0", "-1", "0", "+0"],
        ["total", "2", "-3", "1", "+1"],
        ["code:", "-60.0", "%"],
    ]
