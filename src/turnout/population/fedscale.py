"""Convert FedScale's traces of the availability and speed of phones to `TimedTrace` and `RecordedSpeed`.

FedScale distributes pickles. Since a pickle can run any code, they are read by an unpickler that allows only dictionaries,
lists, numbers and texts.
"""

from __future__ import annotations

import hashlib
import math
import reprlib
from pathlib import Path
from typing import Any

from turnout.core.checks import ConfigurationError, DataError, positive
from turnout.data.plain_pickle import read_pickle
from turnout.data.reading import check_file, read_bytes
from turnout.population.availability.recording import TimedTrace
from turnout.population.speed.recorded import RecordedSpeed


def fedscale_availability(path: str | Path, *, sha256: str | None = None, seconds_per_round: int = 600) -> TimedTrace:
    """Read FedScale's availability trace (``client_behave_trace``) as a `TimedTrace`.

    The file holds ``{client: {"duration", "inactive": [...], "finish_time", "active": [...], "model"}}``; a client is
    available from each second in `active` to the second in `inactive` with the same index. Clients are numbered in the order
    of the file.

    Args:
        path: the pickle.
        sha256: its checksum in hexadecimal digits; None does not check it.
        seconds_per_round: see `TimedAvailability`.

    Raises:
        DataError: if a file is missing, has another checksum or structure, or holds other than plain values.

    Reference: Lai et al., "FedScale: benchmarking model and system performance of federated learning at scale", ICML 2022.
    """
    rows, clients = [], _clients(path, sha256, "availability")
    for number, entry in enumerate(clients):
        try:
            starts, ends = list(entry["active"]), list(entry["inactive"])
            visits = [(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise DataError(
                f"{path}, client {number}: got {_short(entry)}, needed 'active' and 'inactive', equally many seconds each"
            ) from error
        rows += [(number, start, end) for start, end in visits if end > start]
    if not rows:
        raise DataError(f"{path}: no client is ever available")
    return TimedTrace(tuple(rows), num_devices=len(clients), drawn=True, seconds_per_round=seconds_per_round)


def fedscale_speed(
    path: str | Path, *, sha256: str | None = None, batch_size: int = 20, message_kbytes: float = 1000.0
) -> RecordedSpeed:
    """Read FedScale's device capacities (``client_device_capacity``) as a `RecordedSpeed` per step, drawn for every client.

    The file holds ``{client: {"computation": milliseconds to infer one example, "communication": kbit per second}}``. As in
    FedScale, a training step takes three times the inference of its batch, and a message its size over the bandwidth::

        compute = 3 batch_size computation / 1000,    download = upload = 8 message_kbytes / communication

    Args:
        path: the pickle.
        sha256: its checksum in hexadecimal digits; None does not check it.
        batch_size: examples of a local step.
        message_kbytes: size of the model in kilobytes.

    Raises:
        DataError: if a file is missing, has another checksum or structure, or holds other than plain values.

    Reference: Lai et al., ICML 2022.
    """
    positive("batch_size", batch_size)
    positive("message_kbytes", message_kbytes)
    rows = []
    for number, entry in enumerate(_clients(path, sha256, "capacity")):
        try:
            compute, bandwidth = float(entry["computation"]), float(entry["communication"])
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise DataError(
                f"{path}, client {number}: got {_short(entry)}, needed numbers 'computation' and 'communication'"
            ) from error
        if not (math.isfinite(compute) and compute > 0 and math.isfinite(bandwidth) and bandwidth > 0):
            raise DataError(f"{path}, client {number}: got {_short(entry)}, needed numbers > 0")
        trip = 8 * message_kbytes / bandwidth
        rows.append((number, trip, 3 * batch_size * compute / 1000, trip))
    return RecordedSpeed(tuple(rows), per="step", drawn=True)


def _clients(path: str | Path, sha256: str | None, what: str) -> list[Any]:
    """Read the values of the file's dictionary, in its order."""
    file = Path(path)
    check_file(file, f"FedScale's {what}")
    content = read_bytes(file)
    if sha256 is not None:
        if len(sha256) != 64:
            raise ConfigurationError(f"sha256: got {sha256!r}, needed 64 hexadecimal digits")
        digest = hashlib.sha256(content).hexdigest()
        if digest != sha256.lower():
            raise DataError(f"{file}: its SHA-256 is {digest}, expected {sha256}: download it again")
    table = read_pickle(file)
    if not isinstance(table, dict) or not table:
        raise DataError(f"{file}: got {_short(table)}, needed a dictionary with an entry for every client")
    return list(table.values())


_SHORT = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = _SHORT.maxlong = 60
_short = _SHORT.repr
"""Return a shortened representation of a value, which may be very long or recursive."""
