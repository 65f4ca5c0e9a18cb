"""Secure sums that no number of rounds would open are refused at the start, and those that were opened are counted."""

import pytest
from tests.tiny import classification

import turnout as to
from turnout.cli.run import sums_opened
from turnout.comparison.folders import load_record
from turnout.pieces.aggregation import PrivateSum, SecureSum

LOCAL = to.Sgd(lr=0.1, steps=1)


def run(piece, num_clients=6, folder=None, **options):
    algorithm = to.average_participating(LOCAL, also=(piece,))
    data = classification([4] * num_clients)
    return to.Experiment(data, to.models.Logistic(), algorithm, rounds=4, **options).run(folder)


NOISED = PrivateSum(
    norm=0.5, noise_multiplier=1.0, cohort=6, noise_shares=6, dropouts=1,
    secure=SecureSum(largest=1.0, fraction_bits=16, min_clients=2),
)  # fmt: skip


@pytest.mark.parametrize(("piece", "least"), [(SecureSum(), 3), (SecureSum(degree=2, min_clients=5), 5), (NOISED, 5)])
def test_too_few_clients_for_any_sum_are_refused(piece, least):
    with pytest.raises(
        to.ConfigurationError, match=rf"num_clients: got {least - 1}, but a secure sum has at least {least} "
    ):
        run(piece, least - 1, population=to.Population(to.availability.Everyone()))
    run(piece, least, population=to.Population(to.availability.Everyone()))


@pytest.mark.parametrize("secure", [SecureSum(), PrivateSum(norm=0.5, cohort=2, secure=SecureSum(largest=1.0))])
def test_cohorts_that_are_too_small_are_refused(secure):
    algorithm = to.average_participating(LOCAL, also=(to.selection.Uniform(2), secure))
    data = classification([4] * 8)
    with pytest.raises(
        to.ConfigurationError, match=r"cohort_size: got 2, .*: write cohort_size=3 or more, or a smaller"
    ):
        to.Experiment(data, to.models.Logistic(), algorithm, rounds=1)
    with pytest.raises(to.ConfigurationError, match="cohort: got 2, but a secure sum has at least 3"):
        SecureSum(cohort=2)


def test_cohort_that_is_a_share_of_the_clients_is_counted():
    """A share of a half of eight clients is four, and not half a client."""
    data = classification([4] * 8)

    def experiment(share):
        algorithm = to.average_participating(LOCAL, cohort_size=share, also=(SecureSum(),))
        return to.Experiment(data, to.models.Logistic(), algorithm, rounds=1)

    experiment(0.5).run()
    with pytest.raises(to.ConfigurationError, match=r"cohort_size: got 2, but a secure sum has at least 3"):
        experiment(0.25)


def test_groups_that_are_too_small_are_refused():
    algorithm = to.fedbuff(LOCAL, also=(SecureSum(),))
    with pytest.raises(to.ConfigurationError, match=r"group_size: got 2, .*: write group_size=3 or more, or a smaller"):
        to.Experiment(
            classification([4] * 8), to.models.Logistic(), algorithm, pace=to.pace.BufferedGroups(2, group_size=2)
        ).run()


def test_opened_sums_are_counted(tmp_path):
    rare = to.Population(to.availability.Bernoulli(mean=0.4))
    result = run(SecureSum(largest=64.0), folder=tmp_path, population=rare, seed=1)
    opened = sum(number > 0 for number in result.rounds["num_participants"].to_pylist())
    assert 0 < opened < 4
    assert sums_opened(load_record(tmp_path)) == f"{opened} of 4 secure sums opened"


def test_run_without_masks_counts_no_sums(tmp_path):
    to.Experiment(classification(), to.models.Logistic(), to.fedavg(LOCAL), rounds=1).run(tmp_path)
    assert sums_opened(load_record(tmp_path)) is None


def test_run_that_opened_no_sum_says_so():
    with pytest.raises(
        to.ConfigurationError, match=r"0 of 4 secure sums opened, .* write a smaller min_clients than 6"
    ):
        run(SecureSum(largest=64.0, min_clients=6), population=to.Population(to.availability.Bernoulli(mean=0.2)))
