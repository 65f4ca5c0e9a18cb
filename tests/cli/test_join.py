"""``turnout serve`` and ``turnout join`` as people type them, each in a process of its own."""

import re

import pytest

from ..children import command_line

OWN = "import torch\ndef examples():\n    return torch.rand(30, 64), torch.arange(30) % 10\n"
MODEL = ("data.num_clients=4", "data.partition=iid", "model=logistic", "rounds=2", "evaluate_every=2")


@pytest.mark.parametrize(
    ("number", "settings"),
    [
        (4, ("algorithm=fedau", "aggregation=secure_sum", "aggregation.largest=64", "server=adam")),
        (3, ("algorithm=fedau", "aggregation=private_sum", "aggregation.norm=1", "aggregation.secure.fraction_bits=20")),
        (4, ("algorithm=fedbuff", "pace=buffered_groups", "pace.buffer_size=1", "pace.group_size=4", "aggregation=secure_sum",
             "aggregation.largest=64")),
        (4, ("algorithm=fedau", "aggregation=private_sum", "aggregation.norm=1", "aggregation.noise_shares=4",
             "aggregation.dropouts=1", "aggregation.secure.fraction_bits=14")),
        (1, ("algorithm=fedavg", "aggregation=median", "also.clip.norm=1.0", "server=momentum")),
        (1, ("algorithm=average_participating", "aggregation=private_sum", "aggregation.norm=1", "aggregation.cohort=1",
             "aggregation.noise_multiplier=1")),
        (1, ("algorithm=fedbuff", "pace.buffer_size=1", "also.top_k.share=0.1", "server=yogi")),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else None,
)  # fmt: skip
def test_two_commands_are_enough(number, settings, tmp_path):
    """Clients know the server's address and their own data, and nothing of what it runs."""
    (tmp_path / "own.py").write_text(OWN)
    serve = command_line(
        tmp_path, "serve", *MODEL, *settings, "--port", 0, "--min-clients", number, "--folder", "run", "--linger", 2
    )
    serve.wait_for(lambda: "serving at" in serve.output)
    found = re.search(r"serving at (\S+)", serve.output)
    assert found is not None
    url = found[1]
    joins = [
        command_line(tmp_path, "join", url, "--data", "own.py:examples", "--state", f"state-{k}") for k in range(number)
    ]
    for join in joins:
        code, out, err = join.ended(60)
        assert code == 0, err
        assert "the run is over" in out
    code, out, err = serve.ended(60)
    assert code == 0, err
    assert "the run is over after 2 of 2 steps" in out
