"""Unusable devices are refused in one line."""

import pytest

from turnout.core.checks import ConfigurationError
from turnout.core.device import check_device


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
