"""Build the kernel while shoal is installed, or a wheel is made: what hatchling runs (pyproject.toml)."""

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Kernel(BuildHookInterface[Any]):
    """The kernel goes into wheels, built for every set of instructions; where it cannot be built, the wheel has none
    and suits every platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        try:
            runpy.run_path(str(Path(self.root, "shoal", "compiled", "build.py")))["build"]()
        except (OSError, RuntimeError) as error:
            self.app.display_warning(f"the kernel is not built: {error}; torch takes the steps, more slowly")
            return
        if version != "editable":
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["artifacts"].append("/shoal/compiled/built/*.so")
            build_data["pure_python"], build_data["tag"] = False, f"py3-none-{platform}"
