"""Derive masks from keys: X25519 and HKDF agree on a seed, and AES in counter mode expands it."""

from __future__ import annotations

import secrets
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.protocol.secure import curve
from turnout.protocol.secure.messages import ProtocolError

SEED_BYTES = 32


def word(bits: int) -> np.dtype[Any]:
    """Return the smallest unsigned type for numbers modulo ``2^bits``, with `bits` from 1 to 64."""
    return np.dtype(f"uint{next(size for size in (8, 16, 32, 64) if bits <= size)}")


def reduce(values: np.ndarray, bits: int) -> np.ndarray:
    """Reduce numbers of type `word` modulo ``2^bits``, in place."""
    if bits < 8 * values.dtype.itemsize:
        values &= values.dtype.type(2**bits - 1)
    return values


def expand(seed: bytes, length: int, bits: int) -> np.ndarray:
    """Return a mask ``[length]`` of pseudorandom numbers modulo ``2^bits``: AES-256 in counter mode over zeros.

    The counter starts at 0, so that each seed must be used for only one mask.
    """
    _required()
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    kind = word(bits)
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    drawn = np.frombuffer(bytearray(stream.update(bytes(length * kind.itemsize))), dtype=kind.newbyteorder("<"))
    return reduce(drawn.astype(kind, copy=False), bits)


def secret_words(positions: torch.Tensor, _: int) -> torch.Tensor:
    """Draw 64 random bits for each position, int64 ``[n]``, from a fresh secret seed that is not stored.

    The arguments are those of `turnout.privacy.gaussian.Words`.
    """
    words = expand(secrets.token_bytes(SEED_BYTES), len(positions), 64)
    return torch.from_numpy(words.view(np.int64)).to(positions.device)


def new_key() -> bytes:
    """Return a new X25519 private key, 32 bytes."""
    _required()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.generate().private_bytes_raw()


def public(key: bytes) -> bytes:
    """Return the public key of a private key, 32 bytes."""
    _required()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def agree(key: bytes, other: bytes, purpose: bytes) -> bytes:
    """Return the 32 bytes that two clients agree on for a purpose: HKDF-SHA256 of their X25519 secret.

    Args:
        key: private key of one client.
        other: public key of the other client.
        purpose: the purpose; each purpose yields different bytes.

    Raises:
        ProtocolError: if the public key has another length, or a low order, with which the secret would be known to
            all.
    """
    _required()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    try:
        secret = X25519PrivateKey.from_private_bytes(key).exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise ProtocolError("a public key is of low order, or does not have 32 bytes") from None
    return derive(secret, purpose)


def derive(secret: bytes, purpose: bytes) -> bytes:
    """Return 32 bytes for a purpose from the X25519 secret of two clients, by HKDF-SHA256."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=SEED_BYTES, salt=None, info=b"turnout secagg " + purpose).derive(secret)


def check_public(*keys: bytes) -> None:
    """Validate public keys.

    Raises:
        ProtocolError: if a key has low order, another length than 32 bytes, or is not on the curve but on its twist, for
            which `turnout.protocol.secure.evidence` has no proof.
    """
    for key in keys:
        _check_public(key)


@lru_cache(maxsize=1 << 14)  # a server checks the keys of a sum in every phase
def _check_public(key: bytes) -> None:
    """Validate a public key, see `check_public`."""
    agree(new_key(), key, b"check")
    if curve.lift(key) is None:
        raise ProtocolError("a public key is not on the curve")


def pairwise(key: bytes, other: bytes, number: int, other_number: int) -> bytes:
    """Return the seed of the pairwise mask of two clients, the same for both."""
    low, high = sorted((number, other_number))
    return agree(key, other, b"mask %d %d" % (low, high))


def _required() -> None:
    """Check that the package cryptography is installed.

    Raises:
        ConfigurationError: if it is not; the message names the extra.
    """
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "secure sums need cryptography: pip install '.[secure]' in a clone of turnout"
        ) from None
