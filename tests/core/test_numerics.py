"""Settings of torch and NumPy that the caller has changed: results have the same bits, and the settings stay."""

import os
import signal
import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout.core.numerics import default_settings, use_threads
from turnout_serve.client.computer import Computer
from turnout_serve.client.worker import Worker
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import digest, encode, model_tensors

from ..tiny import classification


@contextmanager
def default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        yield
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def meta_device():
    torch.set_default_device("meta")
    try:
        yield
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_device(None)


@contextmanager
def flushed_denormals():
    torch.set_flush_denormal(True)
    try:
        yield
        assert torch.tensor(1e-40).mul(0.5).item() == 0.0
    finally:
        torch.set_flush_denormal(False)


SETTINGS = {
    "float64": lambda: default_dtype(torch.float64),
    "bfloat16": lambda: default_dtype(torch.bfloat16),
    "meta device": meta_device,
    "no gradients": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "flushed denormals": flushed_denormals,
    "errors of NumPy": lambda: np.errstate(all="raise"),
}
DATA = classification(sizes=(12, 9, 14))


class Tiny(nn.Module):
    """A linear layer with a denormal parameter, which has no influence and must keep its value."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4, 16), 0.01, dtype=torch.float32))
        self.small = nn.Parameter(torch.tensor([1e-39], dtype=torch.float32))

    def forward(self, x):
        return nn.functional.linear(x, self.weight) + 0.0 * self.small


def underflow(*_):
    """A figure of evaluations that underflows to 0."""
    return float(np.float64(1e-300) * np.float64(1e-300))


def experiment(model):
    sgd = to.Sgd(lr=0.1, steps=2, batch_size=4)
    return to.Experiment(DATA, model, to.fedau(sgd), rounds=2, seed=3, engine="one_by_one", metrics=(underflow,))


MODELS = {"ready-made": lambda: to.models.Mlp(hidden=(6,)), "module": Tiny}


def outcome(model):
    """Return the parameters and the losses of a run."""
    result = experiment(model).run()
    return {name: value.clone() for name, value in result.state_dict().items()}, result.rounds["train_loss"].to_pylist()


@pytest.fixture(scope="module")
def expected():
    return {name: outcome(make()) for name, make in MODELS.items()}


@pytest.mark.parametrize("setting", SETTINGS)
def test_results_do_not_depend_on_settings_of_the_caller(expected, setting):
    for name, make in MODELS.items():
        model = make()
        with SETTINGS[setting]():
            parameters, losses = outcome(model)
        assert losses == expected[name][1]
        assert all(torch.equal(value, parameters[key]) for key, value in expected[name][0].items())


@pytest.mark.parametrize("setting", ["float64", "no gradients"])
def test_reports_of_clients_do_not_depend_on_settings_of_the_caller(setting):
    """Functions for data are code of users, which may change them."""

    def report():
        computer = Computer(experiment(MODELS["ready-made"]()))
        initial = computer.objective.initial
        body = encode(model_tensors(initial, {}, torch.float32))
        task = Assignment(1, 0, "train", 0, digest(body), len(body), 5.0, {})
        worker = Worker(computer)
        done = worker.do(0, task, {"params": initial.clone()}, worker.first_memory())
        assert done is not None
        return done[0]

    alone = report()
    with SETTINGS[setting]():
        assert report() == alone


def test_default_type_is_restored_by_the_last_of_several_threads():
    entered, leave = threading.Event(), threading.Event()

    def other():
        with default_settings():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with default_dtype(torch.float64):
        with default_settings():
            thread.start()
            entered.wait(10)
        assert torch.get_default_dtype() == torch.float32  # the other one still computes
        leave.set()
        thread.join(10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forked_process_has_one_thread_until_it_asks_for_more():
    if (child := os.fork()) == 0:
        try:
            with default_settings():
                first = torch.get_num_threads()
            use_threads(2)
            with default_settings():
                os._exit(10 * first + torch.get_num_threads())
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 12


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forked_process_computes_the_same(expected):
    """The attack: a process whose threads of OpenMP wait for work forks."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.ones(1 << 17).mul(2.0).sum()
    if (child := os.fork()) == 0:
        signal.alarm(20)  # ends a child that hangs
        try:
            with default_settings():
                torch.ones(1 << 17).mul(2.0).sum()
            os._exit(0 if outcome(MODELS["ready-made"]())[1] == expected["ready-made"][1] else 1)
        finally:
            os._exit(2)
    torch.set_num_threads(before)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("setting", "reason"), [("meta device", "have no values"), ("inference mode", "created in inference mode")]
)
def test_parameters_that_cannot_be_trained_are_refused(setting, reason):
    with SETTINGS[setting]():
        model = nn.Linear(16, 4)
    with pytest.raises(ConfigurationError, match=f"parameter 'weight' .*{reason}"):
        experiment(model).run()
