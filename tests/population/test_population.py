import pytest

from turnout.population import Everyone, Markov, Population


def test_everyone_by_default():
    assert Population() == Population(availability=Everyone())
    assert Population(Markov()).availability == Markov()


def test_a_class_in_place_of_options():
    with pytest.raises(ValueError, match=r"availability: got .*Markov.*, needed an availability: write Markov\(\)"):
        Population(Markov)  # type: ignore[arg-type]


def test_a_name_in_place_of_options():
    with pytest.raises(ValueError, match=r"availability: got 'markov', needed an availability, such as Markov"):
        Population("markov")  # type: ignore[arg-type]
