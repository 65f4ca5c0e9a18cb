"""Devices that cannot be used are refused in one line, and each has a default memory budget."""

from types import SimpleNamespace

import pytest
import torch

from turnout.core.checks import ConfigurationError
from turnout.core.device import check_device, memory_budget


@pytest.mark.parametrize("name", ["meta", "mps", "nowhere", "cuda:99", 1.5])
def test_unusable_device_is_refused_in_one_line(name):
    with pytest.raises(
        ConfigurationError, match=f"device {name!r} cannot be used here: .*Write device='cpu'"
    ) as caught:
        check_device(name)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_cpu_is_a_device():
    check_device("cpu")


@pytest.mark.parametrize(("memory", "budget"), [(80 << 30, 10 << 30), (4 << 30, 1 << 30)])
def test_default_memory_budget_is_a_share_of_the_gpu(memory, budget, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=memory))
    assert memory_budget(torch.device("cuda")) == budget
    assert memory_budget(torch.device("cuda"), 5) == memory_budget(torch.device("cpu"), 5) == 5
    assert memory_budget(torch.device("cpu")) == 1 << 30
