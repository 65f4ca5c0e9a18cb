"""The search for the options of one rule."""

import math

import pytest

from turnout.comparison.tuning import Outcome, Search

SEEDS = (100, 101)


class Bowl:
    """Figures that fall with the distance from a best point in logarithms; remembers the trials."""

    def __init__(self, **best):
        self.best, self.trials = best, []

    def __call__(self, trials):
        self.trials += trials
        return [Outcome(self.figure(trial), 10 * trial.rounds) for trial in trials]

    def figure(self, trial):
        return -sum(math.log2(value / self.best[axis]) ** 2 for axis, value in trial.values.items())


def test_best_point_inside_of_the_first_range_is_found_without_growth():
    bowl = Bowl(lr=0.1, server_lr=2.0)
    tuned = Search({"lr": (0.05, 0.1, 0.2), "server_lr": (1.0, 2.0, 4.0)}, 40, SEEDS, 10**6, bowl)()
    assert tuned.values == {"lr": 0.1, "server_lr": 2.0}
    assert tuned.edges == ()
    assert tuned.tried == {"lr": [0.05, 0.1, 0.2], "server_lr": [1.0, 2.0, 4.0]}
    whole = {tuple(trial.values.values()) for trial in bowl.trials if trial.rounds == 40}
    assert {(0.05, 2.0), (0.2, 2.0), (0.1, 1.0), (0.1, 4.0)} < whole  # all neighbors of the choice
    assert tuned.updates == sum(10 * trial.rounds for trial in bowl.trials)


@pytest.mark.parametrize("best", [0.0125, 1.6])
def test_range_grows_until_the_best_point_lies_inside(best):
    tuned = Search({"lr": (0.1, 0.2), "server_lr": (1.0, 2.0, 4.0)}, 40, SEEDS, 10**6, Bowl(lr=best, server_lr=4.0))()
    assert tuned.values == {"lr": pytest.approx(best), "server_lr": 4.0}
    assert tuned.edges == ()
    for axis, value in tuned.values.items():
        assert tuned.tried[axis][0] < value < tuned.tried[axis][-1]


def test_search_whose_budget_ends_says_which_options_are_at_the_edge():
    tuned = Search({"lr": (0.1, 0.2, 0.4)}, 40, SEEDS, 1, Bowl(lr=100.0))()
    assert tuned.values == {"lr": 0.4}
    assert tuned.edges == ("lr",)


def test_candidates_are_raced_on_the_same_seeds():
    bowl = Bowl(lr=0.4)
    Search({"lr": (0.05, 0.1, 0.2, 0.4)}, 30, SEEDS, 10**6, bowl)()
    short = [trial for trial in bowl.trials if trial.rounds == 10]
    assert [(trial.values["lr"], trial.seed) for trial in short] == [(0.05, 100), (0.1, 100), (0.2, 100), (0.4, 100)]
    whole = [(trial.values["lr"], trial.seed) for trial in bowl.trials if trial.rounds == 30]
    # A third survives. The neighbor above the range is worse on the first seed, and never runs with the second.
    assert whole == [(0.2, 100), (0.4, 100), (0.4, 101), (0.8, 100)] or whole == [
        (0.4, 100),
        (0.2, 100),
        (0.4, 101),
        (0.8, 100),
    ]


def test_point_that_a_short_run_misjudges_is_found_by_its_neighbors():
    class Hasty(Bowl):
        def figure(self, trial):
            short = trial.rounds < 30
            return trial.values["lr"] if short else super().figure(trial)

    tuned = Search({"lr": (0.05, 0.1, 0.2, 0.4, 0.8)}, 30, SEEDS, 10**6, Hasty(lr=0.1))()
    assert tuned.values == {"lr": 0.1}
    assert tuned.edges == ()


def test_candidate_has_to_be_better_on_every_seed():
    class Unlucky(Bowl):
        def figure(self, trial):
            return super().figure(trial) - 10.0 * (trial.seed == 101 and trial.values["lr"] == 0.4)

    assert Search({"lr": (0.1, 0.2)}, 40, SEEDS, 10**6, Unlucky(lr=0.4))().values == {"lr": 0.2}


def test_runs_that_diverge_are_the_worst():
    class Diverging(Bowl):
        def figure(self, trial):
            return math.nan if trial.values["lr"] > 0.2 else super().figure(trial)

    tuned = Search({"lr": (0.1, 0.2, 0.4)}, 40, SEEDS, 10**6, Diverging(lr=0.4))()
    assert tuned.values == {"lr": 0.2}
    assert math.isfinite(tuned.figure)


def test_no_trial_begins_after_the_budget_and_rules_cost_about_the_same():
    costs = [Search({"lr": (0.1, 0.2)}, 40, SEEDS, 5000, Bowl(lr=best))().updates for best in (1e-9, 1e9)]
    assert all(5000 <= cost < 5000 + 2 * 400 for cost in costs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"axes": {"lr": (0.1,)}}, r"lr: got \[0\.1\], needed at least two ascending values"),
        ({"axes": {"lr": (0.2, 0.1)}}, "needed at least two ascending values"),
        ({"axes": {"lr": (0.0, 0.1)}}, "lr: got 0.0, needed a finite number > 0"),
        ({"seeds": ()}, "needed at least one seed that no reported run has"),
        ({"budget": 0}, "budget: got 0"),
        ({"rounds": 0}, "rounds: got 0"),
    ],
)
def test_invalid_searches_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Search(**{"axes": {"lr": (0.1, 0.2)}, "rounds": 40, "seeds": SEEDS, "budget": 10, "perform": Bowl()} | options)
