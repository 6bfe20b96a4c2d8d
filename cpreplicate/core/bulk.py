"""Two idioms for the loops over all files of a checkpoint, of which there may be a million.

Nearly every file lies in the directory of the file before it. Such a loop therefore remembers the
prefix that the last file began with, and handles a file that begins with it too by slicing: no
directory is parsed or looked up twice in a row.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Prefix: TypeAlias = "str | tuple[()]"
"""What the last file began with, or `NO_PREFIX`."""

NO_PREFIX: Final[tuple[()]] = ()
"""A prefix that no text begins with, for loops that remember none.

`text.startswith(())` is False and `len(())` is 0, so the loop needs no second test for None.
"""

new_row = tuple.__new__
"""Make a `NamedTuple` from its class and a tuple of all fields, at half the cost of its class.

`new_row(File, (uri, extent, size, segment))` equals `File(uri, extent, size, segment)`. The class's
own `__new__` is a Python function; this one is C.
"""
