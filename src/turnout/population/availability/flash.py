"""Replay the availability of the phones of FLASH."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from turnout.data.directory import Place
from turnout.population.availability.intervals import Intervals, read_intervals
from turnout.population.availability.recording import Recording, of_devices


@dataclass(frozen=True)
class Flash(Recording, name="flash"):
    """Clients replay the availability of 300 real phones over 6.2 days in January and February 2020.

    The phones are the published sample of FLASH's 136,000. In rounds of ten minutes they are charging 16.1 % of the time
    (median 13.0 %), three of them never.

    Attributes:
        available: the condition of availability: ``"charging"``, ``"battery_50"`` (charging, or a battery of at least 50 %)
            or ``"battery_75"``.
        directory: the data directory; None is ``TURNOUT_DATA``, else ``~/.cache/turnout/data``.

    The other options are those of `Recording`.

    Raises:
        ConfigurationError: if the condition of availability is another one.
        DataError: if the recording is not in the data directory, with a remedy.

    Reference: Yang et al., "Characterizing impacts of heterogeneity in federated learning upon large-scale smartphone
    data", WWW 2021.
    """

    available: Literal["charging", "battery_50", "battery_75"] = "charging"
    directory: str | None = None

    @property
    def files(self) -> list[Path]:
        """The file of the recording, whose content runs are compared by; none where it is missing."""
        place = self._place.find(self.directory)
        return [] if place is None else [place / _FLASH[self.available]]

    @property
    def _place(self) -> Place:
        return Place("flash", (_FLASH[self.available],), ("Availability",), remedy=_REMEDY)

    def intervals(self) -> tuple[Intervals, int]:
        """Return the intervals in which phones were available, and the number of phones."""
        file = self._place.locate(self.directory) / _FLASH[self.available]
        return of_devices(read_intervals(str(file), "flash"), 300, "flash")


_FLASH = {
    "charging": "flash300_2_state.parquet",
    "battery_50": "flash300_3_state_50.parquet",
    "battery_75": "flash300_3_state_75.parquet",
}

_REMEDY = "Write availability=diurnal, a generator of the same kind that needs no file"
