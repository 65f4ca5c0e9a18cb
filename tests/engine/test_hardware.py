"""Processors available to this process."""

import math
import os

import numpy as np
import pytest
import torch

from turnout.core.device import to_device
from turnout.engine import hardware as machine
from turnout.engine.hardware import num_processors, quota


def tree(root, groups, **files):
    """A file system in which the process is in `groups`; files by their path under the control groups."""
    for path, text in {
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{path}": text for path, text in files.items()},
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("", {}, math.inf),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "200000 50000\n"}, 4.0),  # of the group around it
        ("0::/a\n", {"a/cpu.max": "300000 100000\n", "cpu.max": "200000 100000\n"}, 2.0),
        ("0::/host/path\n", {"cpu.max": "250000 100000\n"}, 2.5),  # a container that sees its own root only
        ("2:cpuset:/\n", {"cpuset/cpu.cfs_quota_us": "1", "cpuset/cpu.cfs_period_us": "1"}, math.inf),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ("1:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "50000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 0.5),
        (
            "4:cpu,cpuacct:/docker/x\n0::/\n",
            {"cpu,cpuacct/cpu.cfs_quota_us": "300000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
            3.0,
        ),
        ("1:cpu:/\n0::/\n", {"unified/cpu.max": "100000 100000\n"}, 1.0),
    ],
)
def test_quota_of_control_groups_is_read(groups, files, expected, tmp_path):
    assert quota(tree(tmp_path, groups, **files)) == expected


@pytest.mark.parametrize(("given", "expected"), [(math.inf, 6), (2.9, 2), (0.5, 1), (100.0, 6)])
def test_processors_are_limited_by_mask_and_quota(given, expected, monkeypatch):
    monkeypatch.setattr(machine, "quota", lambda: given)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    assert num_processors() == expected


def test_processors_without_affinity_masks(monkeypatch):
    monkeypatch.setattr(machine, "quota", lambda: math.inf)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert num_processors() == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert num_processors() == 1


@pytest.mark.parametrize("values", [np.arange(3), torch.arange(3)])
def test_values_are_moved_with_their_dtype(values):
    here = to_device(values, torch.device("cpu"))
    assert here.dtype == torch.int64
    assert here.tolist() == [0, 1, 2]
    there = to_device(values, torch.device("meta"), torch.float32)
    assert (there.device.type, there.dtype, there.shape) == ("meta", torch.float32, (3,))
