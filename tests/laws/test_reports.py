"""What the server makes of reports depends on what is in them, and on nothing else."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from turnout.base import StepsAlone, controls
from turnout.base.server_step import server_step
from turnout.core.adapter import Adapter
from turnout.core.types import Report
from turnout.pieces.aggregation import FedStale
from turnout.pieces.server_optimizer.sgd import Amplified, ServerSgd
from turnout.pieces.weighting import KnownRates, Participation
from turnout.simulation import Simulation

from .. import tiny
from ..tiny import federation, presence
from .recipes import CLIENTS, LOCAL, PLAIN, RATES, RECIPES, SERVER, SOME, N, assert_same_tensors, experiment, trained

P = 7
MULTISETS = [name for name in RECIPES if "fednu" in name or "two" in name or "twice" in name]
# Whoever has taken no step yet, or a single one, has gradients and models that are huge and still numbers.
FEW_STEPS = [n for n, make in RECIPES.items() if any(c.asks_everyone for c in make(LOCAL).keeping)] + ["mw_fed"]
KNOWN = replace(federation(N, P, RATES), adapters=(Adapter("layer", 0, 2, 1, 2, 2, 0.5),))


def report(clients, delta=None, **options):
    """Reports in which there also is what control variates send."""
    one = tiny.report(clients, delta, **options)
    extra = (1.0 + torch.from_numpy(one.client))[:, None] * torch.linspace(-0.1, 0.2, P)
    return replace(one, extra={"control": extra.to(one.delta.dtype)})


def seen_of(n, rng, dtype=torch.float64):
    """All that a weighting may read of n clients."""
    return {
        "loss": torch.ones(n),
        "start_gradient": torch.from_numpy(rng.normal(size=(n, P)) + 0.3).to(dtype),
        "inexactness": torch.from_numpy(rng.uniform(0, 1.2, n)),
        "start_loss": torch.from_numpy(rng.uniform(0.1, 2.0, n)),
        "appeal_gap": torch.from_numpy(rng.normal(size=n)),
        "start_loss_rms": torch.linspace(0.2, 2.0, n, dtype=torch.float64),
    }


def twice(one: Report, rng) -> Report:
    """The same, and some of them once more: clients who were drawn twice."""
    return one.take(np.concatenate([np.arange(len(one)), rng.permutation(len(one))[: len(one) // 3]]))


def reports_of(there, rng):
    """One report for each round, with random updates and sizes, repeats, and others who have only measured."""
    sizes = np.arange(5, 5 + N)
    for present in there:
        clients, others = np.flatnonzero(present), rng.permutation(N)[: rng.integers(N + 1)]
        delta = torch.from_numpy(rng.normal(size=(len(clients), P)))
        trained = report(clients, delta, sizes=sizes[clients], seen=seen_of(len(clients), rng))
        nothing = torch.zeros(len(others), 0, dtype=torch.float64)
        measured = report(others, nothing, sizes=sizes[others], seen=seen_of(len(others), rng))
        yield replace(twice(trained, rng), measured=twice(measured, rng))


def reordered(one: Report, rng) -> Report:
    """The same reports as they may arrive."""
    assert one.measured is not None
    measured = one.measured.take(rng.permutation(len(one.measured)))
    return replace(one.take(rng.permutation(len(one))), measured=measured)


def states_after(algorithm, reports, known=KNOWN):
    """The server's state after all reports, and the info of every step."""
    state, infos = algorithm.init(torch.zeros(known.num_params, dtype=torch.float64), known), []
    for one in reports:
        state, info = server_step(algorithm, state, one, known)
        infos.append(info)
    return state, infos


def batches(seed=0, rounds=8):
    return list(reports_of(presence(rounds, N, seed), np.random.default_rng(seed)))


@pytest.mark.parametrize("name", SERVER)
def test_order_of_reports_is_irrelevant(name):
    rng, reports = np.random.default_rng(1), batches()
    shuffled = [reordered(one, rng) for one in reports]
    assert any(list(a.client) != list(b.client) for a, b in zip(reports, shuffled, strict=True))
    state, _ = states_after(RECIPES[name](LOCAL), reports)
    other, _ = states_after(RECIPES[name](LOCAL), shuffled)
    torch.testing.assert_close(other.params, state.params, rtol=0, atol=1e-12)
    for place in state.slots:
        for key, value in state.slots[place].items():
            torch.testing.assert_close(other.slots[place][key], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in SERVER if "groups" not in name])
def test_names_of_clients_are_irrelevant(name):
    """Except within a group, whose members share one state in the order of their numbers."""
    rename, reports = np.random.default_rng(2).permutation(N), batches()
    renamed = [replace(one, client=rename[one.client]) for one in reports]
    algorithm = RECIPES[name](LOCAL)
    state, infos = states_after(algorithm, reports)
    if isinstance(algorithm.weighting[0], KnownRates):  # the rates go with the clients
        rates = np.empty(N)
        rates[rename] = RATES
        algorithm = replace(algorithm, weighting=(KnownRates(tuple(rates)), *algorithm.weighting[1:]))
    if isinstance(algorithm.aggregation, FedStale) and algorithm.aggregation.shares is not None:  # and so do shares
        shares = np.empty(N)
        shares[rename] = algorithm.aggregation.shares
        algorithm = replace(algorithm, aggregation=replace(algorithm.aggregation, shares=tuple(shares)))
    other, other_infos = states_after(algorithm, renamed)
    torch.testing.assert_close(other.params, state.params, rtol=0, atol=1e-12)
    for info, other_info in zip(infos, other_infos, strict=True):
        assert torch.equal(info["weights"], other_info["weights"])


@pytest.mark.parametrize("name", SERVER)
def test_empty_round_changes_only_the_version(name):
    """With differential privacy it also adds noise to the model and to control variates."""
    algorithm = RECIPES[name](LOCAL)
    noised = ("aggregation", "controls") if algorithm.privacy is not None else ()
    state, _ = states_after(algorithm, batches())
    before = {place: {k: v.clone() for k, v in slot.items()} for place, slot in state.slots.items()}
    after, info = server_step(algorithm, state, report([], num_params=P), KNOWN)
    assert info["num_participants"] == 0
    assert len(info["weights"]) == 0
    assert after.version == state.version + 1
    ends = isinstance(algorithm.server, StepsAlone) and algorithm.server.acts_alone(state.version)
    for place, slot in after.slots.items():
        if not (ends and place in ("server", "held controls")) and place not in noised:
            assert_same_tensors(slot, before[place])
    if ends:
        assert isinstance(algorithm.server, Amplified)
        longer = state.params + (algorithm.server.gamma - 1) * state.slots["server"]["moved"]
        torch.testing.assert_close(after.params, longer, rtol=0, atol=1e-12)
        assert not after.slots["server"]["moved"].any()
    elif noised:
        assert (after.params != state.params).all()
    elif algorithm.aggregation.acts_alone:  # everyone takes part in its rounds with the last update
        kept = state.slots["aggregation"]
        lr = getattr(algorithm.server, "lr", 1.0)
        last = kept["table"].mean(dim=0) if "table" in kept else -lr * kept["total"]  # MIFA, FOCUS
        torch.testing.assert_close(after.params, state.params + last, rtol=0, atol=1e-12)
    else:
        assert torch.equal(after.params, state.params)


def spoiled(one: Report, clients: list[int], place: str, value: float, rng) -> Report:
    """The reports and, at random places among them, bad ones of `clients`; so also among those who have only measured."""
    bad = report(clients, torch.ones(len(clients), P, dtype=torch.float64), seen=seen_of(len(clients), rng))
    if place == "delta":
        bad.updates.gathered()[:, 3] = value
    else:
        bad.seen[place].view(len(bad), -1)[:, -1] = value
    mixed = Report.cat([one, bad]).take(rng.permutation(len(one) + len(bad)))
    if one.measured is not None and place != "delta":
        silent = replace(bad, delta=bad.delta[:, :0])
        measured = Report.cat([one.measured, silent]).take(rng.permutation(len(one.measured) + len(bad)))
        return replace(mixed, measured=measured)
    return replace(mixed, measured=one.measured)


def finite(one: Report | None) -> Report:
    """The reports that hold no NaN and no infinity."""
    assert one is not None
    return one.take(one.finite().nonzero()[0])


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [(name, "delta", np.nan) for name in SERVER]
    + [(name, *bad) for name in SOME for bad in (("delta", -np.inf), ("loss", np.nan), ("start_gradient", np.inf))],
)
def test_reports_with_nan_or_infinity_change_nothing(name, place, value):
    """They count as absent, or as zeros with differential privacy.

    Reports are dropped before any piece reads them, so that few recipes try other values and places than NaN in the update.
    """
    algorithm = RECIPES[name](LOCAL)
    rng, reports = np.random.default_rng(3), batches(rounds=7)
    received, good = [], []
    for one in reports:
        absent = np.setdiff1d(np.arange(N), one.client)
        mixed = spoiled(one, absent[:2].tolist(), place, value, rng)
        received.append(mixed)
        nulled = mixed.nulled()[0] if algorithm.nulls_dropped else finite(mixed)
        good.append(replace(nulled, measured=finite(mixed.measured)))
    state, infos = states_after(algorithm, received)
    expected, _ = states_after(RECIPES[name](LOCAL), good)
    assert torch.isfinite(state.params).all()
    assert_same_tensors({"params": state.params}, {"params": expected.params})
    for slot, as_expected in zip(state.slots.values(), expected.slots.values(), strict=True):
        assert_same_tensors(slot, as_expected)
    assert [info["num_dropped"] for info in infos] == [len(each) - len(finite(each)) for each in received]
    assert sum(info["num_dropped"] for info in infos) > 5


BOUNDED = (
    "qffl",
    "maxfl by centered clipping, qsgd",
    "scaffold, private",
    "fedau of secure private sums",
    "fedawe, clipped",
)  # whose steps shrink, or stay as long, as updates grow
SUMS = ("focus", "focus of a cohort, compressed")  # in which the largest updates of both signs are zero


@pytest.mark.parametrize("name", [name for name in SERVER if name not in (*BOUNDED, *SUMS, *PLAIN)])
def test_a_step_that_overflows_is_empty_and_the_next_one_is_taken(name):
    """It changes what an empty step changes, and the sums of client memory."""
    algorithm = replace(RECIPES[name](LOCAL), server=ServerSgd(100.0))
    largest = torch.finfo(torch.float32).max
    known = replace(KNOWN, dtype=torch.float32)
    state = algorithm.init(torch.zeros(P), known)
    seen = {"start_gradient": torch.ones(N, P), "inexactness": torch.full((N,), 0.5)}
    seen |= {"loss": torch.ones(N), "start_loss": torch.ones(N), "appeal_gap": torch.zeros(N)}
    seen |= {"start_loss_rms": torch.ones(N)}
    measured = report(range(N), torch.ones(N, 0), seen=seen)

    def reports(value):
        return replace(report(range(N), torch.full((N, P), value), seen=seen), measured=measured)

    state, _ = server_step(algorithm, state, reports(1e-3), known)
    for sign in (1.0, -1.0):
        before = replace(state, slots=copy.deepcopy(state.slots))
        state, info = server_step(algorithm, state, reports(sign * largest), known)
        empty, _ = server_step(algorithm, before, Report.empty(before.params), known)
        assert info["num_dropped"] == N
        assert state.version == empty.version
        mirrors = _mirrors(algorithm)
        torch.testing.assert_close(
            {"params": state.params} | _without(state.slots, mirrors),
            {"params": empty.params} | _without(empty.slots, mirrors),
            rtol=0, atol=0,
        )  # fmt: skip
        for slot in controls.PLACES & state.slots.keys():
            for value in state.slots[slot].values():
                assert value.isfinite().all()
    before = state.params
    state, info = server_step(algorithm, state, reports(0.01), known)
    assert info["num_dropped"] == 0
    assert torch.isfinite(state.params).all()
    assert (state.params > before).all()


def _mirrors(algorithm):
    """The slots in which a server sums what clients remember."""
    return controls.PLACES | ({"aggregation"} if algorithm.aggregation.controls.mirrors_clients else set())


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in SERVER
        if n not in (*BOUNDED, *PLAIN)
        and _mirrors(RECIPES[n](LOCAL)) & {*RECIPES[n](LOCAL).init(torch.zeros(P), KNOWN).slots}
    ],
)
def test_sums_of_client_memory_do_not_depend_on_an_overflow_of_the_step(name):
    """Client memory has changed by then, and sums without the change would stay wrong."""
    summed, known = [], replace(KNOWN, dtype=torch.float32)
    for lr, num_dropped in ((1e-3, 0), (3e38, N)):
        algorithm = replace(RECIPES[name](LOCAL), server=ServerSgd(lr))
        before = algorithm.init(torch.zeros(P), known)
        ones = report(range(N), torch.full((N, P), 100.0), seen=seen_of(N, np.random.default_rng(4), torch.float32))
        nothing = replace(ones, delta=ones.delta[:, :0])
        after, info = server_step(algorithm, before, replace(ones, measured=nothing), known)
        assert info["num_dropped"] == num_dropped
        summed.append({slot: after.slots[slot] for slot in _mirrors(algorithm) & after.slots.keys()})
    for slot, expected in summed[0].items():
        assert_same_tensors(summed[1][slot], expected)
    assert any(value.any() for slot in summed[1].values() for value in slot.values())


def _without(slots, names):
    """All tensors of a state but those in some slots."""
    kept = {slot: value for slot, value in slots.items() if slot not in names}
    return {f"{slot} {name}": tensor for slot, value in kept.items() for name, tensor in value.items()}


@pytest.mark.parametrize(
    ("name", "engine"),
    [(name, "vectorized") for name in CLIENTS if name not in FEW_STEPS]
    + [(name, "one_by_one") for name in ("fedau", "ditto", "maxfl, tuned", "folb_two_set")],
)
def test_a_client_whose_training_diverges_is_dropped_counted_and_harmless(name, engine):
    """Recipes with everything that clients do; the other engine differs in how steps and personal models are computed."""
    run = experiment(name, local=replace(LOCAL, steps=3), engine=engine, rounds=5)  # with two, some stay finite
    data = replace(run.data, train=replace(run.data.train, x=run.data.train.x.clone()))
    data.train.client(4)[0].fill_(3e37)
    simulation = trained(replace(run, data=data))
    came = np.isin(simulation.history.participation["client"].to_numpy(), [4]).sum()
    dropped = simulation.history.total("num_dropped")
    if name == "fednu by inexactness":
        assert dropped == came == 0  # it tries its problem first, so it is never chosen
    elif "adamw" in name:
        assert dropped == 0 < came  # its gradients are clipped, and no step of Adam is longer than its step size
    elif RECIPES[name](LOCAL).privacy is not None:
        assert (dropped, came > 0) == (0, True)  # it counts as an update of zeros, and nothing of it is published
    elif name in MULTISETS:
        assert dropped >= came > 0  # as often as it was drawn
    else:
        assert dropped == came > 0
    assert torch.isfinite(simulation.state.params).all()
    assert not torch.equal(simulation.state.params, Simulation(run).state.params)


def test_dropped_reports_are_absences_for_fedau():
    """A client that always sends NaN has the weight of a client that never took part."""
    piece = Participation(cutoff=3)
    algorithm = RECIPES["fedau"](LOCAL)
    bad = report([0, 1], torch.full((2, P), torch.nan, dtype=torch.float64))
    bad.updates.gathered()[1] = 0.0
    state, _ = states_after(algorithm, [bad] * 9)
    np.testing.assert_array_equal(piece.client_weights(9, state.slots["weighting.0"], KNOWN)[:3], [3.0, 1.0, 3.0])
