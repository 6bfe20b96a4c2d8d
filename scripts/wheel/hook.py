"""Adds what is generated to the wheel: man pages, and the bill of materials.

hatchling runs it. The pages are in `share/man/man1`, the bill in `.dist-info/sboms` (PEP 770).
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MAN = "share/man/man1"


class Generated(BuildHookInterface[Any]):
    """Writes the files before the build, and removes them behind it."""

    _directory: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the files and add them to the wheel. An editable one has none."""
        # of a Python that is too old, pip reports that once it has the metadata
        if version == "editable" or sys.version_info < (3, 10):
            return
        self._directory = Path(tempfile.mkdtemp(prefix="cpreplicate-wheel-"))
        # those who build a package again set this to have the same bytes
        moment = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
        for name, text in self._pages(moment).items():
            path = self._write(name, text)
            build_data["shared_data"][path] = f"{_MAN}/{name}"
        bill = json.dumps(self._bill(moment), indent=2) + "\n"
        build_data["sbom_files"].append(self._write("cpreplicate.cdx.json", bill))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the files, which are in the wheel now."""
        del version, build_data, artifact_path
        if self._directory is not None:
            shutil.rmtree(self._directory)

    def _write(self, name: str, text: str) -> str:
        assert self._directory is not None
        path = self._directory / name
        path.write_text(text)
        return str(path)

    def _pages(self, moment: float) -> dict[str, str]:
        sys.path.insert(0, self.root)  # the commands of this source, whatever is installed
        try:
            pages: dict[str, str] = self._module("man_pages")["pages"](moment)
        finally:
            sys.path.remove(self.root)
        return pages

    def _bill(self, moment: float) -> Any:
        module = self._module("sbom")
        core = self.metadata.core
        return module["bill"](
            core.name,
            self.metadata.version,
            core.license_expression,
            core.dependencies,
            core.optional_dependencies,
            module["pinned"](Path(self.root, "requirements.lock").read_text()),
            moment,
            module["bundled"](Path(self.root, "NOTICE").read_text()),
        )

    def _module(self, name: str) -> dict[str, Any]:
        """Run a module beside this one. `scripts` may be the name of another package, too."""
        return runpy.run_path(str(Path(self.root, "scripts", "wheel", f"{name}.py")))
