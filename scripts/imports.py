"""Draw which folders of the package import which, as Mermaid: ``python scripts/imports.py > drawing.md``.

An arrow is left out where a longer way leads there. Fails where there is a circle, of folders or of files; what a file
imports for its types alone counts, too.
"""

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

import grimp

FOLDERS = (
    *("cli", "comparison", "reproduce", "reporting", "bench", "simulation", "deployment", "coordinator", "algorithms"),
    *("selection", "local", "personalization", "guard", "weighting", "aggregation", "server_optimizer", "population"),
    *("pace", "models", "evaluation", "slots", "privacy", "engine", "distributed", "data", "core"),
)


def imports() -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    graph = grimp.build_graph("turnout", cache_dir=None)
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def between_folders(modules: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the folders that each folder imports."""
    found: dict[str, set[str]] = {folder: set() for folder in FOLDERS if f"turnout.{folder}" in modules}
    for module, others in modules.items():
        for other in others:
            one, two = (name.split(".")[1:2] for name in (module, other))
            if one != two and one and two and one[0] in found and two[0] in found:
                found[one[0]].add(two[0])
    return found


def ordered(edges: dict[str, set[str]], what: str) -> list[str]:
    """Return what is imported before what imports it.

    Raises:
        SystemExit: where there is a circle, which is printed.
    """
    try:
        return list(TopologicalSorter(edges).static_order())
    except CycleError as error:
        raise SystemExit(f"{what} that import each other in a circle: {' <- '.join(error.args[1])}") from error


def reached(start: Iterable[str], edges: dict[str, set[str]]) -> set[str]:
    """Return all folders that some folders lead to, themselves included."""
    found, waiting = set[str](), list(start)
    while waiting:
        folder = waiting.pop()
        if folder not in found:
            found.add(folder)
            waiting += edges[folder]
    return found


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
