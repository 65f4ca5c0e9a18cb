"""Who gains from being slow: one fast client throttles itself, under FedStaleWeight's and other weights.

python reproductions/fedstaleweight/incentives.py                    # incentives.png and a table, a minute or two
python reproductions/fedstaleweight/incentives.py --folder pictures --steps 20000
"""

from __future__ import annotations

import argparse
from pathlib import Path

from turnout.reporting.throttling_figure import SPEEDS, throttling_figure
from turnout.theory.throttling import RULES, by_formula, by_simulation


def main() -> None:
    """Draw the picture and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(), help="where the picture goes (default: here)")
    parser.add_argument("--steps", type=int, default=2000, help="aggregations at each speed (default: 2,000)")
    options = parser.parse_args()
    ways = {
        "formula": by_formula(SPEEDS),
        "simulation": by_simulation(SPEEDS, memoryless=True, steps=options.steps),
        "uniform delays": by_simulation(SPEEDS, steps=options.steps),
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
    throttling_figure(options.steps).savefig(options.folder / "incentives.png", dpi=150)
    print(f"\n{options.folder / 'incentives.png'}")


if __name__ == "__main__":
    main()
