"""Differential privacy between real machines: noise that no client can work out, and that a server that died adds again."""

import numpy as np
import pytest
import torch
from safetensors.torch import load

from turnout import (
    BandedSquareRoot,
    ConfigurationError,
    Everyone,
    NoiseShare,
    Poisson,
    Population,
    PrivateSum,
    average_all,
    average_participating,
    fedau,
    privacy,
)
from turnout.core.types import Federation
from turnout.deployment.replay import replay
from turnout.deployment.setting import Setting, check
from turnout.deployment.wire import encode
from turnout.experiment import Experiment
from turnout.models import Logistic
from turnout.privacy.noise import gaussian
from turnout.simulation import Simulation

from ..laws.recipes import DATA, LOCAL
from .test_hostile import put, task_of

ROUNDS = 4


def private(*pieces, recipe=fedau):
    return Experiment(DATA, Logistic(), recipe(LOCAL, also=pieces), Population(Everyone()), rounds=ROUNDS)


def test_noise_is_of_a_secret_that_the_journal_keeps_and_clients_are_never_told(world):
    run = private(PrivateSum(noise_multiplier=2.0, correlation=BandedSquareRoot(2), rounds=ROUNDS))
    deployed = world(run)
    while deployed.host.driver.version < 2:
        deployed.round()
    deployed.restart()  # from the journal, and checkpoints where there are any
    deployed.run()
    driver = deployed.host.driver
    secret = f"{driver.coordinator.federation.secret:064x}"
    plan = run.algorithm.privacy
    assert plan is not None
    assert driver.ledger.history.column("epsilon")[1][-1] == privacy.epsilon(plan.release, ROUNDS, 1e-5)
    simulation = Simulation(run)
    for _ in range(ROUNDS):
        simulation.round()
    assert not torch.allclose(driver.params, simulation.state.params, atol=1e-3)  # whose noise follows from the seed
    assert int(secret, 16).bit_length() > 200
    for path in ("/", "/v1/run", "/v1/status", "/metrics"):
        answer = deployed.host.send("GET", path)
        assert answer.status == 200, path
        assert secret.encode() not in answer.body
    deployed.host.close()
    again = replay(deployed.setting, deployed.folder)
    assert torch.equal(again.driver.params, driver.params)


def test_every_run_has_its_own_noise(world, folder):
    run = private(PrivateSum(noise_multiplier=2.0))
    one, other = (world(run, folder=folder / name).run().host.driver.params for name in "ab")
    assert not torch.allclose(one, other, atol=1e-3)


def test_noise_of_a_secret_is_gaussian_and_a_function_of_it():
    def drawn(secret, release=0, purpose="noise of the model"):
        return gaussian(purpose, Federation(9, 5, secret=secret), release, 20_000).double()

    first = drawn(1 << 200)
    assert torch.equal(first, drawn(1 << 200))
    assert first.mean().abs() < 0.03
    assert first.std().item() == pytest.approx(1.0, rel=0.03)
    for other in (drawn(1 << 200, 1), drawn((1 << 200) + 1), drawn(0), drawn(1 << 200, 0, "noise of the count")):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.03


def test_what_clients_could_work_out_from_the_seed_is_refused():
    with pytest.raises(ConfigurationError, match="whom the server draws follows from the run's seed"):
        check(private(PrivateSum(sampling_rate=0.5), Poisson(0.5), recipe=average_all))
    with pytest.raises(ConfigurationError, match="NoiseShare: the noise of a client follows from the run's seed"):
        check(private(PrivateSum(cohort=8, noise_shares=8), NoiseShare(shares=8), recipe=average_participating))


def test_a_report_with_nan_stays_in_the_step(world):
    """One that is refused would change the weights of all others, by what the client's data are."""
    deployed = world(private(PrivateSum(noise_multiplier=2.0, cohort=8), recipe=average_participating))
    for home in deployed.homes:
        home.step(deployed.host)
    home = deployed.homes[0]
    home.train(deployed.host)
    assert home.state.pending is not None
    tensors = load(home.state.pending.body)
    body, task = encode(tensors | {"delta": tensors["delta"] * torch.nan}), task_of(deployed, 0)
    assert put(deployed, 0, task, body).status == 201
    home.state.pending = None
    while deployed.host.driver.version < 1:
        deployed.round()
    driver = deployed.host.driver
    assert driver.params.isfinite().all()
    assert driver.ledger.history.participation["client"].to_pylist()[:8] == list(range(8))


def test_no_more_clients_enrol_than_delta_allows():
    setting = Setting.of(private(PrivateSum(delta=0.05)))
    assert setting.check_clients(8, None) == 19
    with pytest.raises(ConfigurationError, match=r"max_clients: got 20, and delta=0.05 .* --max-clients 19"):
        setting.check_clients(8, 20)
    with pytest.raises(ConfigurationError, match=r"delta: got 0\.05 with 20 clients"):
        setting.check_clients(20, None)
