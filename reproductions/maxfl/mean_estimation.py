"""Draw figures 5 and 6 of MaxFL: mean estimation with two and three clients.

python reproductions/maxfl/mean_estimation.py                   # figure-5.png and figure-6.png, seconds
python reproductions/maxfl/mean_estimation.py --folder pictures --runs 2000
"""

from __future__ import annotations

import argparse
from pathlib import Path

from turnout.reporting.mean_estimation_figure import appeal_figure, three_clients_figure


def main() -> None:
    """Draw both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(), help="where they go (default: here)")
    parser.add_argument("--runs", type=int, default=10_000, help="runs at each distance (default: the paper's 10,000)")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, figure in {"figure-5": appeal_figure(options.runs), "figure-6": three_clients_figure()}.items():
        figure.savefig(options.folder / f"{name}.png", dpi=150)
        print(options.folder / f"{name}.png")


if __name__ == "__main__":
    main()
