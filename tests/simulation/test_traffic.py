"""Tests of the bytes between a simulated server and its clients."""

from turnout.simulation.messages import Traffic
from turnout.simulation.work_times import Effort


def test_client_that_measured_a_model_receives_only_its_version_to_train():
    traffic = Traffic(
        {"train": Effort(1, bytes_up=40, bytes_down=100), "measure": Effort(1, bytes_up=4, bytes_down=90)}
    )
    traffic.asked("measure", [0, 1])
    traffic.asked("train", [1, 2])
    assert traffic.take() == {"train": (100 + 8, 0), "measure": (180, 0)}
    traffic.asked("train", [1])  # of the next version
    assert traffic.take() == {"train": (100, 0), "measure": (0, 0)}


def test_message_smaller_than_a_version_is_counted_as_it_is():
    traffic = Traffic({"train": Effort(1, bytes_down=3), "measure": Effort(1, bytes_down=3)})
    traffic.asked("measure", [0])
    traffic.asked("train", [0])
    assert traffic.take() == {"train": (3, 0), "measure": (3, 0)}


def test_reports_are_counted_by_phase():
    traffic = Traffic({"train": Effort(1, bytes_up=40), "measure": Effort(1, bytes_up=4)})
    traffic.reported("measure", 2)
    traffic.reported("train", 3)
    assert traffic.take() == {"train": (0, 120), "measure": (0, 8)}
