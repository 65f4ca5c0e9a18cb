"""The pieces of FOLB's recipes, and their refusals."""

from dataclasses import dataclass

import pytest

from turnout import ConfigurationError, Sgd, compose, fednova, fednu, fedprox, folb, folb_heterogeneous, folb_two_set
from turnout.base import Weighting
from turnout.pieces.aggregation import WeightedSum
from turnout.pieces.guard import Clip
from turnout.pieces.local import Inexactness, Prox, StartGradient
from turnout.pieces.selection import (
    AllAvailable,
    ByAlignment,
    ByAlignmentAndInexactness,
    ByGradientNorm,
    TwoCohorts,
    Uniform,
    WithReplacement,
)
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import (
    Alignment,
    ByExamples,
    DivideByAbsoluteSum,
    DivideByLocalSteps,
    DivideByParticipants,
    DivideBySecondCohort,
    DivideBySum,
    Participation,
    SignOfAlignment,
)

FOLB, EXAMPLES = (Alignment(), DivideByAbsoluteSum()), (ByExamples(),)


@pytest.mark.parametrize(
    ("algorithm", "selection", "measurements", "weighting"),
    [
        (folb(), Uniform(10), (StartGradient(),), FOLB),
        (folb(data_weighted=True), Uniform(10), (StartGradient(),), EXAMPLES + FOLB),
        (
            folb_heterogeneous(psi=0.3, cohort_size=7),
            Uniform(7), (StartGradient(), Inexactness()), (Alignment(0.3), DivideByAbsoluteSum()),
        ),
        (folb_two_set(cohort_size=4), TwoCohorts(4), (StartGradient(),), (Alignment(), DivideBySecondCohort())),
        (
            folb_two_set(cohort_size=4, data_weighted=True),
            TwoCohorts(4), (StartGradient(),), (ByExamples(), Alignment(), DivideBySecondCohort(by_examples=True)),
        ),
        (fednu(cohort_size=3), ByAlignment(3), (), (DivideByParticipants(),)),
        (fednu(by="norm", cohort_size=3), ByGradientNorm(3), (), (DivideByParticipants(),)),
        (
            fednu(by="alignment_and_inexactness", psi=2.0, cohort_size=3),
            ByAlignmentAndInexactness(2.0, 3), (), (DivideByParticipants(),),
        ),
        (fednu(by="uniform", cohort_size=3), WithReplacement(3), (), (DivideByParticipants(),)),
        (fednu(signs=True), ByAlignment(10), (StartGradient(),), (SignOfAlignment(), DivideByParticipants())),
        (fedprox(), Uniform(10), (), (ByExamples(), DivideBySum())),
        (fedprox(weighted=False), Uniform(10), (), (DivideByParticipants(),)),
        (fednova(), Uniform(10), (), (ByExamples(), DivideByLocalSteps())),
    ],
)  # fmt: skip
def test_recipes_have_their_pieces(algorithm, selection, measurements, weighting):
    assert algorithm.selection == selection
    assert algorithm.measurements == measurements
    assert algorithm.weighting == weighting
    assert algorithm.aggregation == WeightedSum()
    assert algorithm.local == Sgd()
    assert algorithm.server == ServerSgd(1.0)


def test_mu_is_an_option_of_fedprox_and_a_piece_of_others():
    assert fedprox(mu=0.3).corrections == (Prox(0.3),)
    assert folb(also=(Prox(0.3),)).corrections == (Prox(0.3),)
    assert folb().corrections == ()


@pytest.mark.parametrize("make", [folb, folb_heterogeneous, folb_two_set, fednu, fedprox, fednova])
def test_recipes_accept_local_rules_server_optimizers_and_pieces(make):
    local = Sgd(lr=0.7)
    algorithm = make(local, server_lr=0.5, also=(Clip(2.0),))
    assert algorithm.local is local
    assert algorithm.server == ServerSgd(0.5)
    assert algorithm.guard == (Clip(2.0),)
    assert algorithm.name == make.__name__


def test_selection_replaces_the_default():
    assert folb(also=(WithReplacement(5),)).selection == WithReplacement(5)
    assert folb_heterogeneous(also=(AllAvailable(),)).selection == AllAvailable()
    assert fedprox(also=(ByAlignment(4),)).selection == ByAlignment(4)
    assert folb_two_set(also=(ByAlignment(4),)).selection == ByAlignment(4)  # which asks for gradients too


@dataclass(frozen=True)
class Warm(Weighting):
    """A user-defined weighting that reads a value that no client sends."""

    needs = ("temperature",)

    def apply(self, weights, report, version, state, federation):
        del report, version, federation
        return weights, state


@dataclass(frozen=True)
class Warmed(Weighting):
    """One that reads two things."""

    needs = ("temperature", "start_loss")

    def apply(self, weights, report, version, state, federation):
        del report, version, federation
        return weights, state


NOVA = r"FedNova divides an update by its number of steps, which is right for plain SGD; with {} .*: leave it out"
GRADIENTS = r"{} needs .*, and {} asks no client for gradients before the round: use the selection TwoCohorts\(\) or"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: folb(cohort_size=0), "cohort_size: got 0"),
        (lambda: folb_heterogeneous(psi=-1.0), "psi: got -1.0, needed a finite number >= 0"),
        (lambda: folb_two_set(cohort_size=2.5), "cohort_size: got 2.5"),  # type: ignore[arg-type]
        (lambda: fednu(by="norms"), "unknown value of by 'norms': did you mean 'norm'"),
        (lambda: fednu(by="norm", signs=True), GRADIENTS.format("SignOfAlignment", "ByGradientNorm")),
        (lambda: fednu(by="uniform", signs=True), GRADIENTS.format("SignOfAlignment", "WithReplacement")),
        (lambda: folb_two_set(also=(Uniform(4),)), GRADIENTS.format("DivideBySecondCohort", "Uniform")),
        (lambda: fedprox(mu=-0.1), "mu: got -0.1, needed a finite number >= 0"),
        (lambda: fednova(Sgd(momentum=0.9)), NOVA.format("momentum=0.9")),
        (lambda: fednova(also=(Prox(0.1),)), NOVA.format("Prox")),
        (
            lambda: compose(Alignment(), DivideByAbsoluteSum()),
            r"Alignment reads start_gradient of every report, and no client sends it: add StartGradient\(\) to the pieces",
        ),
        (
            lambda: compose(StartGradient(), Alignment(psi=1.0), DivideByAbsoluteSum()),
            r"Alignment reads inexactness of every report, .*: add Inexactness\(\) to the pieces",
        ),
        (
            lambda: compose(Alignment(psi=1.0), DivideByAbsoluteSum()),
            r"reads start_gradient, inexactness of .*: add StartGradient\(\) and Inexactness\(\) to the pieces",
        ),
        (
            lambda: compose(ByAlignment(3), SignOfAlignment(), DivideByParticipants()),
            r"SignOfAlignment reads start_gradient of every report",  # those who train must send it again
        ),
        (
            lambda: compose(Warm(), DivideBySum()),
            "Warm reads temperature of every report, and no client sends it: add what gives temperature to the pieces",
        ),
        (lambda: compose(Warmed(), DivideBySum()), r"add what gives temperature and StartLoss\(\) to the pieces"),
        (
            lambda: compose(TwoCohorts(3), StartGradient(), ByExamples(), Alignment(), DivideBySecondCohort()),
            r"the first cohort is weighted by examples and the second is not, so weights would sum to a number of "
            r"examples or its inverse: write ByExamples\(\) and DivideBySecondCohort\(by_examples=True\), or neither",
        ),
        (
            lambda: compose(TwoCohorts(3), StartGradient(), Alignment(), DivideBySecondCohort(by_examples=True)),
            "the second cohort is weighted by examples and the first is not",
        ),
        (
            lambda: compose(ByAlignment(3), StartGradient(), SignOfAlignment(by_examples=True), DivideByParticipants()),
            "SignOfAlignment weights clients by their examples in the global gradient and ByAlignment does not: write "
            "by_examples=True in both, or in neither",
        ),
        (
            lambda: compose(ByAlignment(3, True), StartGradient(), SignOfAlignment(), DivideByParticipants()),
            "ByAlignment weights clients by their examples in the global gradient and SignOfAlignment does not",
        ),
        (
            lambda: compose(Alignment(), DivideBySecondCohort(), DivideByAbsoluteSum()),
            "must end in exactly one normalizer",
        ),
        (lambda: compose(StartGradient(), Alignment()), "weights of Alignment need a normalizer after them"),
    ],
)
def test_invalid_arguments_raise(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_compatible_pieces_compose():
    """FOLB's weights with FedAU's, with a clip, and with selections that measure all clients."""
    pieces = (StartGradient(), Participation(5), Alignment(), DivideByAbsoluteSum())
    assert compose(Uniform(3), *pieces, Clip(1.0)).weighting == pieces[1:]
    assert compose(ByAlignment(3), *pieces).selection == ByAlignment(3)
    assert compose(Uniform(3), Prox(0.1), *pieces).corrections == (Prox(0.1),)
