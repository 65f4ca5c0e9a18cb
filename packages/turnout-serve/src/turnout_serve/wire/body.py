"""The base class of JSON bodies, without the types of models: commands that send one request need no PyTorch."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from turnout_serve.wire.edge import read


class Body(BaseModel):
    """A JSON object."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def read(cls, fields: Any) -> Self:
        """Validate a parsed body.

        Raises:
            Malformed: if a field is missing or wrong.
            OtherProtocol: if the enrollment is by another version of the protocol (`turnout_serve.wire.bodies`).
        """
        return read(cls.model_validate, fields)
