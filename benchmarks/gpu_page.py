"""Write the figures of a GPU into docs/performance.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BEGIN, END = "<!-- figures of a GPU, written by benchmarks/gpu.py -->", "<!-- end -->"
COLUMNS = ("plain", "cuda_graph", "float32", "tf32", "bf16", "loop", "pfl", "jax")
NOT_RUN = "Not run yet: `sh scripts/gpu.sh` on a machine with an NVIDIA GPU writes this section."


def section(results: Mapping[str, Any] | None) -> str:
    """Return the section of docs/performance.md: a table, or that nothing was run."""
    if results is None:
        return NOT_RUN
    figures = results["figures"]
    cells = [name.split() for name in figures if " cohort " in name]  # workload, "cohort", size, column
    columns = sorted({cell[3] for cell in cells}, key=COLUMNS.index)
    lines = [f"On {results['machine']['device']}, torch {results['machine']['torch']}. Client updates per second:", ""]
    lines += [f"| workload | cohort | {' | '.join(columns)} |", f"|---|---:|{'---:|' * len(columns)}"]
    for workload, cohort in sorted({(cell[0], int(cell[2])) for cell in cells}):
        speeds = (
            figures.get(f"{workload} cohort {cohort} {column}", {}).get("client_updates_per_s") for column in columns
        )
        lines.append(f"| {workload} | {cohort} | {' | '.join('-' if s is None else f'{s:,.0f}' for s in speeds)} |")
    lines.append("")
    told = {name: value for name, value in figures.items() if " cohort " not in name and name != "profile"}
    lines += [f"- {name}: {_words(value)}" for name, value in told.items()]
    return "\n".join(lines)


def _words(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {each:.4g}" if isinstance(each, float) else f"{key} {each}" for key, each in value.items())


def with_section(page: str, results: Mapping[str, Any] | None) -> str:
    """Return the page with its section written anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{section(results)}\n{END}{after}"
