"""Find transformers of Hugging Face: in a folder, on the Hub, or by a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from turnout.core.checks import ConfigurationError
from turnout.core.extras import imported


def needed(package: str) -> Any:
    """Import a package of the extra.

    Raises:
        ConfigurationError: if it is not installed.
    """
    return imported(package, "a model of Hugging Face", ".[transformers]", package)


def plain(base: Any) -> Any:
    """Return a configuration as a mapping; anything else unchanged."""
    return base.to_dict() if hasattr(base, "to_dict") else str(base) if isinstance(base, Path) else base


def config_of(base: str) -> Any:
    """Return the configuration of a base."""
    transformers = needed("transformers")
    try:
        if base.lstrip().startswith("{"):
            options = json.loads(base)
            return transformers.AutoConfig.for_model(options.pop("model_type"), **options)
        return transformers.AutoConfig.from_pretrained(base)
    except KeyError as error:
        raise ConfigurationError(
            f"base {short(base)} has no {error}, which says what it is: 'gpt2', 'bert', ..."
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"base {short(base)}: {first_line(error)}") from error


def has_weights(base: str) -> bool:
    """Return whether there is more than a configuration; a name that is no path is one on the Hub, which has weights."""
    path = Path(base)
    if base.lstrip().startswith("{") or path.is_file():
        return False
    return not path.is_dir() or any(any(path.glob(pattern)) for pattern in ("*.safetensors", "pytorch_model*.bin"))


def files_of(base: str) -> list[Path]:
    """Return the configuration and the weights of a base that is a local folder or file; none of another."""
    if base.lstrip().startswith("{"):
        return []
    patterns = ("config.json", "*.safetensors", "pytorch_model*.bin")
    return [Path(base), *(path for pattern in patterns for path in Path(base).glob(pattern))]


def short(base: str) -> str:
    """Return a base as messages name it."""
    return repr(base) if len(base) < 80 else f"{base[:77]!r}..."


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0]
