"""Build the documentation site into ``site/``: ``make docs``. Needs no network; warnings are errors.

The pages of ``docs/`` are gathered in ``build/docs`` with what lies beside it (benchmarks, reproductions, the changelog) and
with the reference, which is made from what the package exports, so that nothing public can be left out. Links between them
work in the repository and on the site.
"""

import html
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import turnout as to
from turnout.core import types, updates
from turnout.results.records import RunRecord
from turnout.workbench.benchmark.cells import Version
from turnout.workbench.benchmark.page import write
from turnout.workbench.benchmark.rows import published
from turnout.workbench.benchmark.standings import RANKED, table_of

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # where the folder of scripts lies
GATHERED = ROOT / "build" / "docs"
NAMES = ROOT / "build" / "names.json"
"""The public names by which docstrings speak of each other, and where they are; `griffe_docstrings` makes links of them."""

TABLE = "benchmark-table.html"
"""The page of the participation benchmark, which is made here and named by pages of docs/ as if it were there."""

BESIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
    "reproductions/README.md": "reproductions/claims.md",
    **{
        page.relative_to(ROOT).as_posix(): f"reproductions/{page.parent.name}.md"
        for page in ROOT.glob("reproductions/*/README.md")
    },
}
"""Pages that are no part of docs/, and where they go."""

LINKED = ("docs/guides/choosing.md", "docs/guides/equations.md")
"""Pages on which the names of algorithms lead to the reference."""

PAGES = {
    "experiment": "Experiments and results",
    "algorithms": "Algorithms",
    "selection": "Selection",
    "local": "Local training",
    "personalization": "Personalization",
    "guard": "Guards",
    "weighting": "Weighting",
    "aggregation": "Aggregation",
    "server_optimizer": "Server optimizers",
    "population": "Population",
    "pace": "Pace",
    "data": "Data",
    "models": "Models",
    "privacy": "Differential privacy",
    "pieces": "Base classes",
    "types": "Messages and state",
    "others": "Everything else",
}
"""Pages of the reference; what is in none of these folders of the package goes to the last one."""

FAMILIES = {
    "selection": "`to.selection`",
    "local": "`to.local`; `to.Sgd` is also there without it",
    "personalization": "`to.personalization`",
    "guard": "`to.guard`",
    "weighting": "`to.weighting`",
    "aggregation": "`to.aggregation`",
    "server_optimizer": "`to.server`, without the prefix: `ServerAdam` is `to.server.Adam`",
    "population": "`to.availability`, `to.speed`, `to.delay`, `to.requirement` and `to.behavior`, for `to.Population`",
    "pace": "`to.pace`",
    "data": "`to.data`, and partitions in `to.partition`",
    "models": "`to.models`",
    "privacy": "`to.privacy`",
    "pieces": "`to.pieces`",
}
"""Modules of ``import turnout as to`` in which users find what a page shows."""

WHOLE = ("experiment", "privacy", "pieces", "types", "others")
"""Pages that also show methods; those of pieces are the methods of their base classes."""

OF_EXPERIMENTS = ("experiment", "result", "comparison", "results", "reporting", "callbacks", "record", "simulation")


def page_of(module: str) -> str:
    """Return the page of the reference that shows what a module of the package defines, by the folder that it lies in."""
    folders = module.split(".")[1:]
    if folders[0] == "base":
        return "pieces"
    inner = {"pieces": folders[1:2], "protocol": folders[1:2]}.get(folders[0], [])
    folder = inner[0] if inner else folders[0]
    page = "experiment" if folder in OF_EXPERIMENTS else folder
    return page if page in PAGES else "others"


def public() -> Iterator[tuple[str, Any]]:
    """Yield the page and the object of everything public that has a docstring of its own."""
    things = [getattr(to, name) for name in to.__all__]
    modules = [thing for thing in things if inspect.ismodule(thing)]
    for module in modules:  # a package without `__all__` exports what it imports
        exported = [
            name for name, thing in vars(module).items() if getattr(thing, "__module__", "").startswith(module.__name__)
        ]
        names = getattr(module, "__all__", exported)
        things += [getattr(module, name) for name in names]
    for thing in things:
        if (inspect.isclass(thing) or inspect.isfunction(thing)) and thing.__module__.startswith("turnout"):
            yield page_of(thing.__module__), thing
    yield "experiment", RunRecord
    for module in (types, updates):
        yield from (
            ("types", thing) for thing in vars(module).values() if getattr(thing, "__module__", "") == module.__name__
        )


def reference() -> dict[str, list[str]]:
    """Return the full names of what each page of the reference shows, each once."""
    found: dict[str, list[str]] = {page: [] for page in PAGES}
    for page, thing in public():
        name = f"{thing.__module__}.{thing.__qualname__}"
        if (inspect.isclass(thing) or inspect.isfunction(thing)) and not any(name in names for names in found.values()):
            found[page].append(name)
    return found


def write_reference(folder: Path) -> None:
    """Write a page of directives for mkdocstrings for each part of the reference, and where its names lead."""
    folder.mkdir(parents=True)
    pages = reference()
    names = [name for page in pages.values() for name in page]
    short = [name.rpartition(".")[2] for name in names]
    links = {last: name for last, name in zip(short, names, strict=True) if short.count(last) == 1}
    NAMES.write_text(json.dumps(links), encoding="utf-8")
    for page, names in pages.items():
        options = "" if page in WHOLE else "    options:\n      members: false\n"
        body = "".join(
            f"::: {name}\n{options}\n" for name in sorted(names, key=lambda name: name.rpartition(".")[2].lower())
        )
        where = f"In {FAMILIES[page]} (`import turnout as to`).\n\n" if page in FAMILIES else ""
        (folder / f"{page}.md").write_text(f"# {PAGES[page]}\n\n{where}{body}", encoding="utf-8")


def gather() -> None:
    """Put all pages into one folder, with links that hold there."""
    shutil.rmtree(GATHERED, ignore_errors=True)
    write_reference(GATHERED / "reference")
    places = {
        path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").as_posix() for path in files()
    } | BESIDE
    places |= {f"{path.relative_to(ROOT)}": f"reproductions/{path.name}" for path in ROOT.glob("reproductions/*/*.png")}
    known = places | of_reference()
    for source, place in places.items():
        target = GATHERED / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".md"):
            target.write_text(adapted((ROOT / source).read_text(encoding="utf-8"), source, known), encoding="utf-8")
        else:
            shutil.copy(ROOT / source, target)
    version = Version.read()
    tables = [table_of(published(version), version, "small", figure) for figure in RANKED]
    write(tables, version, GATHERED / TABLE)


def of_reference() -> dict[str, str]:
    """Return the pages that are made here, by how pages of docs/ name them."""
    return {f"docs/reference/{page}.md": f"reference/{page}.md" for page in PAGES} | {f"docs/{TABLE}": TABLE}


def files() -> list[Path]:
    """Return everything in docs/."""
    return sorted(path for path in (ROOT / "docs").rglob("*") if path.is_file())


def adapted(text: str, source: str, places: dict[str, str]) -> str:
    """Return a page with its links as they are on the site; a link to a file that has no page becomes its name.

    A drawing in Mermaid becomes a table: what draws it would have to be loaded from elsewhere. Equations become MathML.
    Options of commands get a class that keeps them on one line.
    """
    if source in LINKED:
        text = outside_code(with_algorithms, text)
    text = outside_code(lambda part: re.sub(r"(?<!`)(`(?:\w+ ){0,2}--[^`\n]{1,32}`)(?!`)", r"\1{.option}", part), text)
    text = outside_code(lambda part: re.sub(r"(?<!`)`(--[^`|\n]{33,})`(?!`)", long_option, part), text)

    def link(found: re.Match[str]) -> str:
        label, target, anchor = found[1], found[2], found[3] or ""
        here = os.path.normpath(os.path.join(os.path.dirname(source), target))
        if re.match(r"[a-z]+:", target) or not target:
            return found[0]
        here = next((page for page in (here, f"{here}/README.md") if page in places), None)
        if here is None:
            return label
        return f"[{label}]({os.path.relpath(places[here], os.path.dirname(places[source]))}{anchor})"

    text = re.sub(r"```mermaid\n(.*?)```", as_table, with_equations(text), flags=re.S)
    return re.sub(r"\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)", link, text)


def long_option(found: re.Match[str]) -> str:
    """Return code that begins with an option and may be wrapped, with its options on one line each.

    >>> long_option(re.match("`(.*)`", "`--pace x`"))
    '<code><span class="option">--pace</span> x</code>'
    """
    options = re.sub(r"--[\w-]+", r'<span class="option">\g<0></span>', html.escape(found[1], quote=False))
    return f"<code>{options}</code>"


def outside_code(change: Callable[[str], str], text: str) -> str:
    """Return a page with its text changed, except in blocks of code."""
    parts = re.split(r"(```.*?```)", text, flags=re.S)
    parts[::2] = [change(part) for part in parts[::2]]
    return "".join(parts)


def with_algorithms(text: str) -> str:
    """Return text in which names of algorithms in code font are links to the reference."""
    links = {
        name: f"[`{name}`](../reference/algorithms.md#{recipe.__module__}.{recipe.__qualname__})"
        for name, recipe in to.ALGORITHMS.items()
    }
    return re.sub(r"(?<![\[`])`(\w+)`", lambda found: links.get(found[1], found[0]), text)


def with_equations(text: str) -> str:
    """Return a page with its equations, ```` ```math ```` and ``$`...`$`` as on GitHub, in MathML, which browsers render."""
    from scripts.equations import mathml

    def block(found: re.Match[str]) -> str:
        return f'<div class="equation">{mathml(found[1], "block")}</div>\n'

    text = re.sub(r"```math\n(.*?)```\n", block, text, flags=re.S)
    return re.sub(r"\$`([^`]+)`\$", lambda found: mathml(found[1], "inline"), text)


def as_table(drawing: re.Match[str]) -> str:
    """Return the arrows of a drawing as a table."""
    imports: dict[str, list[str]] = {}
    for one, two in re.findall(r"(\w+) --> (\w+)", drawing[1]):
        imports.setdefault(one, []).append(two)
    return "| folder | imports |\n|---|---|\n" + "".join(
        f"| {one} | {', '.join(twos)} |\n" for one, twos in imports.items()
    )


def in_navigation(nav: list[Any]) -> set[str]:
    """Return the pages that the navigation names."""
    found = set[str]()
    for entry in nav:
        for value in entry.values():
            found |= in_navigation(value) if isinstance(value, list) else {value}
    return found


def main() -> int:
    """Gather, check the navigation, build."""
    gather()
    nav = in_navigation(tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"])
    there = {path.relative_to(GATHERED).as_posix() for path in GATHERED.rglob("*.md")}
    if nav != there:
        print(f"zensical.toml: no page for {sorted(nav - there)}, not in the navigation: {sorted(there - nav)}")
        return 1
    return subprocess.run(
        [Path(sys.executable).parent / "zensical", "build", "--strict", "--clean"], cwd=ROOT
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
