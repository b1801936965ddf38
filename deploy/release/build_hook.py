"""Hook of hatchling that adds the archive of the server tree to the wheel."""

from __future__ import annotations

import runpy
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ServerTree(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Pack the tree, unless the package is installed in place, where the checkout is the tree."""
        if version == "editable":
            return
        self._folder = tempfile.mkdtemp()
        archive = Path(self._folder, "server.tar")
        root = Path(self.root)
        runpy.run_path(str(root / "deploy" / "release" / "tree.py"))["pack"](root, archive)
        build_data["force_include"][str(archive)] = "threads_cluster/server.tar"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the archive, which the wheel contains by now."""
        if version != "editable":
            shutil.rmtree(self._folder)
