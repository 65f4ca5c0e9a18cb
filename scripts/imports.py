"""Draw which folders and distributions import which, as Mermaid: ``python scripts/imports.py > drawing.md``.

An arrow is left out where a longer way leads there. Fails where there is a circle, of folders or of files. Imports for
types alone count, too. The exceptions of the contract in pyproject.toml are not drawn.
"""

import tomllib
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PACKAGES = ("turnout", "turnout_serve", "turnout_flower")
CONTRACT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"][0]
FOLDERS = set(PACKAGES[1:]) | {folder.strip(" ()") for layer in CONTRACT["layers"] for folder in layer.split(":")}
EXCEPTIONS = {tuple(line.split(" -> ")) for line in CONTRACT.get("ignore_imports", [])}


def imports() -> dict[str, set[str]]:
    """Return the modules that each module of all distributions imports."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def folder(module: str) -> str:
    """Return the folder of the contract that a module is in, or its distribution; an empty text for modules at the top."""
    package, *parts = module.split(".")
    if package != "turnout":
        return package
    return next((name for name in (".".join(parts[:2]), parts[0] if parts else "") if name in FOLDERS), "")


def between_folders(modules: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the folders that each folder imports."""
    edges: dict[str, set[str]] = {name: set() for name in FOLDERS}
    for module, others in modules.items():
        for other in others:
            one, two = folder(module), folder(other)
            if one and two and one != two and (module, other) not in EXCEPTIONS:
                edges[one].add(two)
    return edges


def ordered(edges: dict[str, set[str]], what: str) -> list[str]:
    """Return what is imported before what imports it.

    Raises:
        SystemExit: where there is a circle, which is printed.
    """
    try:
        return list(TopologicalSorter({name: sorted(edges[name]) for name in sorted(edges)}).static_order())
    except CycleError as error:
        raise SystemExit(f"{what} that import each other in a circle: {' <- '.join(error.args[1])}") from error


def reached(start: Iterable[str], edges: dict[str, set[str]]) -> set[str]:
    """Return all folders that some folders lead to, themselves included."""
    reachable, waiting = set[str](), list(start)
    while waiting:
        name = waiting.pop()
        if name not in reachable:
            reachable.add(name)
            waiting += edges[name]
    return reachable


def main() -> None:
    """Print the drawing."""
    modules = imports()
    ordered(modules, "files")
    edges = between_folders(modules)
    print("```mermaid\nflowchart TD")
    for one in reversed(ordered(edges, "folders")):
        for two in sorted(edges[one]):
            if two not in reached(edges[one] - {two}, edges):
                print(f"    {one} --> {two}")
    print("```")


if __name__ == "__main__":
    main()
