"""Who gains from being slow: one fast client throttles itself, under FedStaleWeight's and other weights.

python -m reproductions.fedstaleweight.incentives                    # incentives.png and a table, minutes
python -m reproductions.fedstaleweight.incentives --folder pictures --seeds 20
"""

from __future__ import annotations

import argparse
from pathlib import Path

from reproductions.fedstaleweight.throttling import RULES, SPEEDS, by_formula, by_simulation, throttling_figure


def main() -> None:
    """Draw the picture and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(), help="where the picture goes (default: here)")
    parser.add_argument("--steps", type=int, default=1000, help="server steps at each speed (default: 1,000)")
    parser.add_argument("--seeds", type=int, default=5, help="schedules at each speed (default: 5)")
    options = parser.parse_args()
    run = {"steps": options.steps, "seeds": range(options.seeds)}
    ways = {
        "formula": by_formula(SPEEDS),
        "simulation": by_simulation(SPEEDS, memoryless=True, **run),
        "uniform delays": by_simulation(SPEEDS, **run),
    }
    print("influence in fair shares: honest, and the most that another reported speed gives\n")
    print("| rule | " + " | ".join(f"{way}: honest | by lying" for way in ways) + " |")
    print("|---|" + "---:|---:|" * len(ways))
    for name in RULES:
        cells = []
        for found in ways.values():
            *lies, honest = found[name]
            best = max(range(len(lies)), key=lies.__getitem__)
            cells += [f"{honest:.2f}", f"{lies[best]:.2f} at {SPEEDS[best]:.0%}"]
        print(f"| {name} | {' | '.join(cells)} |")
    options.folder.mkdir(parents=True, exist_ok=True)
    throttling_figure(**run).savefig(options.folder / "incentives.png", dpi=150)
    print(f"\n{options.folder / 'incentives.png'}")


if __name__ == "__main__":
    main()
