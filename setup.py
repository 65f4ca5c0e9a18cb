"""Build the distribution with the declarations of papers, which lie beside the package in a clone.

Everything else is in `pyproject.toml`.
"""

from pathlib import Path
from shutil import copy2

from setuptools import setup
from setuptools.command.build_py import build_py

DECLARATIONS = Path("reproductions")


class WithDeclarations(build_py):
    """Copy the declarations, and the functions that they name, into the package. An editable install reads the clone."""

    def run(self) -> None:
        """Build the package, and add the files."""
        super().run()
        for source, target in self._copies().items():
            target.parent.mkdir(parents=True, exist_ok=True)
            copy2(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return all files that the package has in the distribution."""
        return [*super().get_outputs(include_bytecode), *map(str, self._copies().values())]

    def _copies(self) -> dict[Path, Path]:
        """Return the place in the package of each file."""
        if self.editable_mode:
            return {}
        into = Path(self.build_lib, "turnout", "workbench", "declarations")
        files = (path for path in DECLARATIONS.glob("*/*") if path.suffix in (".toml", ".py"))
        return {path: into / path.relative_to(DECLARATIONS) for path in files}


setup(cmdclass={"build_py": WithDeclarations})
