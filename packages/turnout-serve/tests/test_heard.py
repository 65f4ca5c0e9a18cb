"""Status, metrics and page show who is heard as distributions, and nothing that the tables of a private run leave out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from tests.tiny import classification

import turnout as to
from turnout.data.shards import Shards
from turnout.pieces.aggregation import PrivateSum
from turnout.protocol.client_arrays import Influence
from turnout.protocol.published import Published
from turnout_serve.cli.commands.status import participation_table, rows_of
from turnout_serve.server.run.figures import DECILES, contributions_of, summary
from turnout_serve.server.run.ledger import Ledger

from .test_evaluate import LOCAL, PLAIN, experiment

EVERYONE = to.Population(to.availability.Everyone())
PART = to.fedavg(LOCAL, also=(to.selection.Uniform(2),))
BY_DATA = to.compose(
    to.weighting.ExamplesUpTo(30),
    to.weighting.DivideByParticipants(),
    PrivateSum(noise_multiplier=2.0, cohort=8),
    LOCAL,
)
SAMPLED = to.average_all(LOCAL, also=(PrivateSum(noise_multiplier=2.0, sampling_rate=0.4), to.selection.Poisson(0.4)))


def served(algorithm, data=None):
    return to.Experiment(data or classification(), to.models.Logistic(), algorithm, EVERYONE, rounds=3)


def status(deployed):
    return deployed.host.send("GET", "/v1/status").table()


def metrics(deployed):
    return deployed.host.send("GET", "/metrics").body.decode().splitlines()


def text_of(table):
    console = Console(width=120, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_quantiles_of_participation_are_exact():
    """Eleven clients, of whom client n is in n of ten steps, two versions late, with weight 1."""
    influence = Influence(11)
    for step in range(10):
        who = np.arange(step + 1, 11)
        influence.add(who, np.full(len(who), 2), np.ones(len(who)))
    found = summary(influence.columns(), 10, Published(PART))
    assert (found["version"], found["never"]) == (10, 1 / 11)
    assert found["deciles"]["participation"] == pytest.approx(DECILES)
    assert found["deciles"]["staleness"] == [2.0] * 11
    assert np.mean(found["deciles"]["influence"]) == pytest.approx(1.0)  # shares of 11 clients, over 1 / 11
    assert summary({}, 3, Published(PART)) == summary(influence.columns(), 0, Published(PART)) == {}
    assert summary(influence.columns(), 10, Published(SAMPLED)) == {}


def test_participation_figures_survive_a_restart(world):
    deployed = world(served(PART))
    assert (status(deployed)["heard"], status(deployed)["evaluation"]) == ({}, None)
    deployed.run()
    columns, figures = contributions_of(deployed.host.driver), status(deployed)
    heard = figures["heard"]
    assert heard["version"] == 3
    assert heard["never"] == np.mean(columns["contributions"] == 0)
    assert heard["deciles"]["participation"] == pytest.approx(np.quantile(columns["contributions"] / 3, DECILES))
    n = len(columns["influence"])
    assert heard["deciles"]["influence"] == pytest.approx(np.quantile(columns["influence"] * n, DECILES))
    lines = metrics(deployed)
    assert f"turnout_clients_never_heard {heard['never']}" in lines
    assert f'turnout_client_influence{{quantile="0.9"}} {heard["deciles"]["influence"][9]}' in lines
    assert "# TYPE turnout_client_participation gauge" in lines
    shown = text_of(participation_table(figures))
    assert f"after 3 steps; {heard['never']:.1%} of clients never" in shown
    assert "influence (fair share = 1)" in shown
    assert f"{heard['deciles']['influence'][10]:.3g}" in shown
    deployed.restart()
    assert status(deployed)["heard"] == heard


def test_status_shows_the_last_evaluation_by_group(world):
    deployed = world(experiment(to.maxfl(LOCAL, cohort_size=3), **PLAIN)).run()
    figures = status(deployed)
    evaluation = figures["evaluation"]
    row = deployed.host.driver.ledger.history.evaluations.last
    assert (evaluation["version"], evaluation["asked"], evaluation["answered"]) == (4, row["asked"], row["answered"])
    assert row["answered"] > 0
    for name in ("client_test_mean", "client_test_worst", "test_accuracy_of_0_1", "test_accuracy_of_3"):
        assert evaluation["figures"][name] == row[name]
        assert f'turnout_evaluation{{figure="{name}"}} {row[name]}' in metrics(deployed)
    assert f'turnout_evaluation_clients{{state="answered"}} {row["answered"]}' in metrics(deployed)
    rows = rows_of(figures)
    assert ("evaluation", f"{row['answered']} of {row['asked']} answered at 4") in rows
    assert ("evaluation: client test worst", f"{row['client_test_worst']:.4g}") in rows
    deployed.restart()
    assert status(deployed)["evaluation"] == evaluation


def test_status_omits_figures_that_are_not_finite(world, monkeypatch):
    """JSON has no NaN, and a status that fails would be worse than one that lacks a figure."""
    row = {"version": 1, "asked": 2, "answered": 0, "lost": {'a"b': 2}, "figures": {"examples": 0, "other": np.nan}}
    monkeypatch.setattr(Ledger, "evaluation", row)
    deployed = world(served(PART))
    deployed.round()
    assert status(deployed)["evaluation"] == {**row, "figures": {"examples": 0}}
    assert r'turnout_evaluation_lost{reason="a\"b"} 2' in metrics(deployed)


def without_examples(data, client, number):
    """The same federation, in which a client lacks its last examples."""
    keep = torch.ones(len(data.train.x), dtype=torch.bool)
    keep[data.train.offsets[client + 1] - number : data.train.offsets[client + 1]] = False
    offsets = data.train.offsets.copy()
    offsets[client + 1 :] -= number
    return replace(data, train=Shards(data.train.x[keep], data.train.y[keep], offsets))


def test_a_private_run_does_not_show_weights_that_depend_on_data(world, folder):
    """The attack: how many examples a client has moves its influence, and nothing that everyone may ask for."""
    data, public, secret = classification(), [], []
    for name, each in (("one", data), ("other", without_examples(data, 2, 3))):
        deployed = world(served(BY_DATA, each), folder=folder / name).run()
        secret.append(contributions_of(deployed.host.driver)["influence"])
        public.append((status(deployed)["heard"], [line for line in metrics(deployed) if "turnout_client" in line]))
    assert not np.array_equal(*secret)
    assert public[0] == public[1]
    assert set(public[0][0]["deciles"]) == {"participation", "staleness"}
    assert b"influence" not in deployed.host.send("GET", "/v1/status").body
    assert not any("influence" in line for line in metrics(deployed))
