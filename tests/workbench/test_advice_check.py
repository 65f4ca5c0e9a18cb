"""The check of the advice on generated populations (`benchmarks/advice.py`), of one of them."""

from __future__ import annotations

import json

import numpy as np
from benchmarks.advice import FILE, Check, Verdict, counts, population


def verdict(named: str, best: str, lost: float, equal: bool) -> Verdict:
    """Return a verdict with a spread of two points."""
    return Verdict("markov", "labels", 0.3, named, best, lost, 0.02, equal)


def test_verdict_is_right_within_the_spread() -> None:
    verdicts = [
        verdict("mifa", "mifa", 0.0, equal=False),
        verdict("fedau", "mifa", 0.01, equal=False),
        verdict("fedau", "mifa", 0.03, equal=True),
        verdict("average_participating", "mifa", 0.01, equal=True),
    ]
    assert counts(verdicts) == {"populations": 4, "best": 1, "right": 3, "no difference": 2, "said so": 1}


def test_page_says_how_often_the_advice_is_right() -> None:
    found = counts([Verdict(**each) for each in json.loads(FILE.read_text("utf-8"))])
    page = " ".join((FILE.parents[1] / "docs/benchmark.md").read_text("utf-8").split())
    assert f"checks the advice on {found['populations']} traces" in page
    assert (
        f"names the best rule for {found['best']} of the traces, and that rule or one within one standard deviation over "
        f"seeds for {found['right']}" in page
    )
    assert f"No rule matters for {found['no difference']} of them" in page
    assert f"The advice says so for {found['said so']} of these" in page


def test_rates_of_a_generated_population_are_those_that_its_kind_says() -> None:
    alike, labels = population(0), population(2)
    assert min(alike.settings["availability"]["rates"]) > 0.85
    counts_of = labels.experiment("average_participating", {}, 0).data.label_counts()
    rare = counts_of[:, :5].sum(axis=1) / counts_of.sum(axis=1)
    rates = labels.settings["availability"]["rates"]
    assert np.corrcoef(rare, np.log(rates))[0, 1] < -0.999


def test_advice_on_a_generated_population_is_right() -> None:
    found = Check.ready().verdict(5)
    assert found.rates == "unrelated"
    assert found.is_right, found
