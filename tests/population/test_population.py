import pytest

from turnout.describe import describe, differences
from turnout.population import Dropout, Everyone, Markov, Population, Speed


def test_everyone_by_default():
    assert Population() == Population(availability=Everyone())
    assert Population(Markov()).availability == Markov()


def test_without_a_speed_there_is_no_clock():
    assert Population().speed is None
    assert Population(speed=Speed(), dropout=Dropout(0.1), seconds_per_round=60).seconds_per_round == 60


def test_a_description_from_before_there_were_speeds_is_the_same_population():
    # config.json of run folders, and checkpoints, are compared by `differences`: they must still be accepted.
    before = {"kind": "Population", "availability": {"kind": "Everyone"}}
    assert list(differences(before, describe(Population()))) == []
    assert list(differences(before, describe(Population(speed=Speed())))) != []


def test_a_class_in_place_of_options():
    with pytest.raises(ValueError, match=r"availability: got .*Markov.*, needed an availability: write Markov\(\)"):
        Population(Markov)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"speed: got .*Speed.*, needed a speed: write Speed\(\)"):
        Population(speed=Speed)  # type: ignore[arg-type]


def test_a_name_in_place_of_options():
    with pytest.raises(ValueError, match=r"availability: got 'markov', needed an availability, such as Markov"):
        Population("markov")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"dropout: got 0\.1, needed a dropout, such as Dropout\(probability=0\.05\)"):
        Population(speed=Speed(), dropout=0.1)  # type: ignore[arg-type]


def test_seconds_per_round_are_positive():
    with pytest.raises(ValueError, match=r"seconds_per_round: got 0, needed a finite number > 0"):
        Population(speed=Speed(), seconds_per_round=0)


@pytest.mark.parametrize("options", [{"dropout": Dropout(0.1)}, {"seconds_per_round": 60.0}])
def test_what_needs_a_clock_is_refused_without_one(options):
    name = next(iter(options))
    with pytest.raises(ValueError, match=rf"{name} is about a clock, and without a speed there is none: write speed="):
        Population(**options)
