"""Conditions of the theorems on step sizes, and their scope."""

import math
import warnings

import pytest

from turnout import ConfigurationError, Experiment, Sgd, ditto, fedalt, fedavg, fedavg_p, fedper, scaffold_p
from turnout.algorithms.step_sizes import StepSizeWarning, unmet_conditions, warn_of_step_sizes
from turnout.core.schedule import Halving
from turnout.data.named.mnist_clients import digits_binary
from turnout.models import SplitLogistic
from turnout.pieces.local import Prox, UniformWork

N, M, K, L, T = 10, 9, 25, 2.0, 100
ROOT_M, ROOT_NM = math.sqrt(M), math.sqrt(N / M)


def right(make, gamma, m=M, eta_u=ROOT_M, eta_v=ROOT_NM, steps=K, **options):
    """The algorithm with ``gamma_u eta_u = gamma_v eta_v = gamma``."""
    local = Sgd(lr=gamma / eta_u, steps=steps)
    return make(local, cohort_size=m, server_lr=eta_u, outer_lr=eta_v, lr_factor=eta_u / eta_v, **options)


@pytest.mark.parametrize(
    ("make", "m", "largest"),
    [
        (fedavg_p, 9, 1 / (32 * L * K)),
        (scaffold_p, 9, 1 / (72 * L * K)),
        (scaffold_p, 2, 2 / N ** (2 / 3) / (72 * L * K)),
    ],
)
def test_gamma_has_an_upper_limit(make, m, largest):
    roots = {"m": m, "eta_u": math.sqrt(m), "eta_v": math.sqrt(N / m)}
    assert unmet_conditions(right(make, largest, **roots), N, T, L) == []
    (unmet,) = unmet_conditions(right(make, 1.01 * largest, **roots), N, T, L)
    assert unmet == (
        f"gamma = gamma_u eta_u is {1.01 * largest:.4g}, needed at most {largest * L * K:.4g} / (L K) = {largest:.4g}"
    )


@pytest.mark.parametrize("make", [fedavg_p, scaffold_p])
def test_outer_step_sizes_have_lower_limits(make):
    unmet = unmet_conditions(right(make, 1e-5, eta_u=0.99 * ROOT_M), N, T, L)
    assert unmet == ["eta_u (server_lr) is 2.97, needed at least sqrt(m) = 3"]
    unmet = unmet_conditions(right(make, 1e-5, eta_v=0.99 * ROOT_NM), N, T, L)
    assert unmet == ["eta_v (outer_lr) is 1.044, needed at least sqrt(n/m) = 1.054"]
    assert unmet_conditions(right(make, 1e-5, eta_u=3.0000001, eta_v=1.0540926), N, T, L) == []


def test_full_participation_fedavg_p_needs_outer_steps_proportional_to_the_rounds():
    largest = 1 / (84 * L * K)
    assert unmet_conditions(right(fedavg_p, largest, m=N, eta_u=T, eta_v=1.0), N, T, L) == []
    unmet = unmet_conditions(right(fedavg_p, 1.1 * largest, m=N, eta_u=99.0, eta_v=0.9), N, T, L)
    assert unmet[0] == "eta_u (server_lr) is 99, needed at least max(T, sqrt(n)) = 100"
    assert unmet[1] == "eta_v (outer_lr) is 0.9, needed at least 1 = 1"
    assert unmet[2].startswith(f"gamma = gamma_u eta_u is {1.1 * largest:.4g}, needed at most 0.0119 / (L K)")


def test_both_parts_must_have_the_same_gamma():
    algorithm = fedavg_p(Sgd(lr=1e-6, steps=K), cohort_size=M, server_lr=ROOT_M, outer_lr=ROOT_NM)
    (unmet,) = unmet_conditions(algorithm, N, T, L)
    assert unmet == "gamma_u eta_u is 3e-06 and gamma_v eta_v is 1.054e-06, needed the same"


@pytest.mark.parametrize(
    "algorithm",
    [
        fedavg(),
        fedper(),
        ditto(),
        fedalt(),
        fedavg_p(Sgd(lr=Halving(0.1, start=1, every=1))),
        fedavg_p(Sgd(steps=UniformWork(1, 3))),
        fedavg_p(Sgd(steps=None, epochs=1)),
    ],
)
def test_other_algorithms_cause_no_warning(algorithm):
    assert unmet_conditions(algorithm, N, T, L) == []


def test_smoothness_must_be_positive():
    with pytest.raises(ConfigurationError, match="smoothness: got 0"):
        unmet_conditions(fedavg_p(), N, T, 0)


def test_warning_has_all_numbers():
    with pytest.warns(
        StepSizeWarning,
        match=r"theorems on fedavg_p do not cover these step sizes .L = 2.: eta_u .* is 1, .*; eta_v .*; gamma",
    ):
        warn_of_step_sizes(fedavg_p(cohort_size=M), N, T, L)


def test_run_warns_if_the_model_declares_its_smoothness():
    pytest.importorskip("sklearn")
    data = digits_binary().split(test_fraction=0.0)
    smoothness = SplitLogistic().smoothness(data.train)
    with pytest.warns(StepSizeWarning, match=f"L = {smoothness:.4g}"):
        Experiment(data, SplitLogistic(), fedavg_p(personal="personal", cohort_size=M), rounds=1).run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gamma = 1 / (32 * smoothness * K)
        Experiment(data, SplitLogistic(), right(fedavg_p, gamma, personal="personal", also=(Prox(),)), rounds=1).run()
        Experiment(data, SplitLogistic(), fedavg(), rounds=1).run()
