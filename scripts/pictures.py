"""Make the pictures of the documentation: each by the Python of the page that shows it, as it stands.

``python scripts/pictures.py`` makes all of them, ``python scripts/pictures.py fedau participation`` those of some pages, and
``python scripts/pictures.py front`` that of the README and the front page, from the runs of ``make demo``.
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from turnout.results.records import RunRecord

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DEMO = "runs/demo"
RARE = (8, 9)
NAMES = {
    "average_participating": "plain average",
    "fedau": "FedAU",
    "known_statistics": "known rates",
    "fedvarp": "FedVARP",
}


def main() -> None:
    """Make the pictures that the command line names, or all of them."""
    wanted = set(sys.argv[1:])
    for page in sorted(DOCS.rglob("*.md")):
        if not wanted or page.stem in wanted:
            for picture in of_page(page):
                print(picture.relative_to(ROOT))
    if not wanted or "front" in wanted:
        for picture in front():
            print(picture.relative_to(ROOT))


def of_page(page: Path) -> list[Path]:
    """Run the Python of a page, up to the last block that saves a picture; return the pictures, which lie beside the page."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    saving = [i for i, block in enumerate(blocks) if ".savefig(" in block]
    if not saving:
        return []
    names = {"__name__": f"docs_{page.stem}"}
    sys.modules[names["__name__"]] = type(sys)(names["__name__"])  # where dataclasses look up names
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for block in blocks[: saving[-1] + 1]:
            exec(compile(block, page.name, "exec"), names)
        os.chdir(ROOT)
        pictures = [page.parent / picture.name for picture in sorted(Path(folder).glob("*.svg"))]
        for picture in pictures:
            shutil.copy(Path(folder) / picture.name, picture)
            without_metadata(picture)
    return pictures


def without_metadata(picture: Path) -> None:
    """Take the date out of a picture, so that the same picture is the same file."""
    text = re.sub(r"<metadata>.*?</metadata>", "", picture.read_text(encoding="utf-8"), flags=re.DOTALL)
    picture.write_text(text, encoding="utf-8")


def front() -> list[Path]:
    """Draw what the demo shows: who takes part when, who holds rare digits, and how well these are recognized.

    The second picture has the same panels in two rows, for phones.
    """
    from turnout.cli.run_plan import saved
    from turnout.cli.settings import Settings
    from turnout.comparison.folders import load_records, run_folders
    from turnout.reporting.style import new_figure

    folder = ROOT / DEMO
    if not folder.is_dir():
        sys.exit(f"no {DEMO}: run `turnout compare --config examples/demo.toml --folder {DEMO}` first")
    records = load_records([folder])
    counts = Settings(saved(run_folders([folder])[0])).data().label_counts()
    wide, narrow = new_figure(9.6, 3.3), new_figure(4.4, 6.2)
    panels = narrow.subplot_mosaic([["who", "rare"], ["accuracy", "accuracy"]], width_ratios=(3, 1))
    draw_front(wide.subplots(1, 3, width_ratios=(5, 1, 5)), records, counts)
    draw_front((panels["who"], panels["rare"], panels["accuracy"]), records, counts)
    pictures = [DOCS / "front.svg", DOCS / "front-narrow.svg"]
    for figure, picture in zip((wide, narrow), pictures, strict=True):
        figure.savefig(picture, transparent=True)
        without_metadata(picture)
    return pictures


def draw_front(axes: "Sequence[Axes]", records: "list[RunRecord]", counts: np.ndarray) -> None:
    """Draw participation, the share of rare digits of each client, and accuracy on them."""
    from turnout.reporting.style import dress

    who, rare, accuracy = axes
    order = draw_participation(who, records[0])
    share = 100 * counts[:, RARE].sum(axis=1) / counts.sum(axis=1)
    rare.barh(np.arange(len(order)) + 0.5, share[order], height=1.0, color="#D55E00")
    rare.set_ylim(0, len(order))
    dress(rare, "8s and 9s (%)", "", "data")
    rare.set(xticks=(0, 100), yticks=[])
    rare.grid(visible=False)
    draw_accuracy(accuracy, records)


def draw_participation(axes: "Axes", record: "RunRecord") -> np.ndarray:
    """Draw who took part in which round, and return the clients in the order in which they are drawn, from below."""
    from matplotlib.colors import LinearSegmentedColormap

    from turnout.reporting.style import dress

    table, rounds = record.history.participation, record.history.last_round
    here = np.zeros((len(record.history.clients), rounds))
    here[table["client"].to_numpy(), table["round"].to_numpy() - 1] = 1.0
    order = np.argsort(here.mean(axis=1), kind="stable")
    colors = LinearSegmentedColormap.from_list("there", ["#0072B200", "#0072B2"])
    axes.imshow(
        here[order],
        aspect="auto",
        origin="lower",
        cmap=colors,
        interpolation="nearest",
        extent=(0, rounds, 0, len(here)),
    )
    dress(axes, "round (ten minutes each)", "100 clients, by availability", "availability")
    axes.set_yticks([])
    axes.grid(visible=False)
    return order


def draw_accuracy(axes: "Axes", records: "list[RunRecord]") -> None:
    """Draw test accuracy on rare digits by round: mean over seeds and a band of one standard deviation."""
    from turnout.reporting.curves import band
    from turnout.reporting.style import INK, PALETTE, dress
    from turnout.results.records import by_algorithm

    groups = by_algorithm(records)
    for color, (algorithm, name) in zip(PALETTE, NAMES.items(), strict=False):
        samples = [record.history.column("test_accuracy_of_8_9") for record in groups[algorithm]]
        rounds, low, mean, high = band(samples, window=30)
        axes.fill_between(rounds, 100 * low, 100 * high, color=color, alpha=0.12, linewidth=0)
        axes.plot(rounds, 100 * mean, color=color, linewidth=1.8, label=name)
    axes.legend(frameon=False, fontsize=10, labelcolor=INK, loc="lower right")
    axes.set_ylim(0, 100)
    dress(axes, "round", "test accuracy on 8s and 9s (%)", "accuracy by algorithm")


if __name__ == "__main__":
    main()
