"""Recipes: each fills the slots of an algorithm as a paper has it."""

from collections.abc import Callable

from turnout.algorithms.fedau import average_all, average_participating, fedau, fedvarp, known_statistics, mifa
from turnout.algorithms.fedavg import fedavg
from turnout.algorithms.fedstaleweight import fedasync, fedbuff, fedstaleweight
from turnout.algorithms.folb import fednova, fednu, fedprox, folb, folb_heterogeneous, folb_two_set
from turnout.algorithms.maxfl import maxfl, mw_fed, perfedavg, qffl
from turnout.algorithms.personalization import ditto, fedalt, fedavg_p, fedper, fedrep, fedsim, scaffold, scaffold_p
from turnout.core.algorithm import Algorithm

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    recipe.__name__: recipe
    for recipe in (
        fedavg, fedau, average_participating, average_all, known_statistics, fedvarp, mifa,
        folb, folb_heterogeneous, folb_two_set, fednu, fedprox, fednova,
        fedavg_p, scaffold_p, fedsim, fedalt, fedrep, fedper, ditto, scaffold,
        maxfl, qffl, perfedavg, mw_fed,
        fedstaleweight, fedbuff, fedasync,
    )
}  # fmt: skip
"""Every recipe by its name on the command line."""

__all__ = [
    "ALGORITHMS",
    "average_all",
    "average_participating",
    "ditto",
    "fedalt",
    "fedasync",
    "fedau",
    "fedavg",
    "fedavg_p",
    "fedbuff",
    "fednova",
    "fednu",
    "fedper",
    "fedprox",
    "fedrep",
    "fedsim",
    "fedstaleweight",
    "fedvarp",
    "folb",
    "folb_heterogeneous",
    "folb_two_set",
    "known_statistics",
    "maxfl",
    "mifa",
    "mw_fed",
    "perfedavg",
    "qffl",
    "scaffold",
    "scaffold_p",
]
