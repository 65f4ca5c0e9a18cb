"""The algorithm of a run stays that which a client has joined."""

import pytest

import turnout as to
from turnout import CheckpointError, ConfigurationError
from turnout.pieces.aggregation import PrivateSum
from turnout_serve.client.state_folder import StateFolder

PRIVATE = to.fedau(also=(PrivateSum(norm=0.5, noise_multiplier=2.0),))


@pytest.mark.parametrize(
    ("later", "difference"),
    [
        (to.fedau(also=(PrivateSum(norm=0.5, noise_multiplier=0.1),)), "aggregation.noise_multiplier: 2.0 and 0.1"),
        (to.fedau(), "aggregation.kind: 'PrivateSum' and "),
    ],
)
def test_server_cannot_remove_privacy_from_a_run_that_a_client_has_joined(later, difference, tmp_path):
    """The attack: the server announces the same run again, with less noise or none, to a client that restarts."""
    state = StateFolder(tmp_path)
    state.check_algorithm(PRIVATE)
    state.check_algorithm(PRIVATE)
    with pytest.raises(ConfigurationError, match="another algorithm than when this client joined") as refused:
        state.check_algorithm(later)
    assert difference in str(refused.value)
    (tmp_path / "algorithm.json").unlink()  # the owner of the data accepts it
    state.check_algorithm(later)


def test_damaged_file_is_named(tmp_path):
    state = StateFolder(tmp_path)
    state.check_algorithm(PRIVATE)
    (tmp_path / "algorithm.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"algorithm\.json"):
        state.check_algorithm(PRIVATE)
