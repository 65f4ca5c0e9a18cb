"""Hold a server to the algorithm of a run that a client has joined."""

from __future__ import annotations

from pathlib import Path

from turnout.base.algorithm import Algorithm
from turnout.core.checks import ConfigurationError
from turnout.record.contents import writable
from turnout.record.describe import describe, differences
from turnout.record.storage import json_writer, read_json, replace_files


def check_algorithm(folder: Path, algorithm: Algorithm) -> None:
    """Compare the algorithm of a run with that at the client's first start, which is stored in its folder.

    A server could otherwise announce a run again without its differential privacy or its secure sum, to clients that restart.

    Args:
        folder: folder of the client's state, which this process has locked.
        algorithm: algorithm that the server announces.

    Raises:
        ConfigurationError: if it is another algorithm, with the differences.
        CheckpointError: if the file is damaged, or the disk is full.
    """
    file, announced = folder.absolute() / "algorithm.json", describe(algorithm)
    if not file.exists():
        with writable([folder]):
            replace_files({file: json_writer(announced)}, private=True)
        return
    if different := list(differences(read_json(file, "delete it to accept that of the server"), announced)):
        raise ConfigurationError(
            f"the server announces another algorithm than when this client joined the run (then, and now): "
            f"{'; '.join(different[:5])}. Stay away, or delete {file} to accept it"
        )
