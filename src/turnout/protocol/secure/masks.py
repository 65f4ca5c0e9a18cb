"""Derive masks from keys: X25519 and HKDF agree on a seed, and AES in counter mode expands it."""

from __future__ import annotations

import secrets
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from turnout.core.extras import imported
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
    kind, ciphers = word(bits), primitives("ciphers")
    stream = ciphers.Cipher(ciphers.algorithms.AES(seed), ciphers.modes.CTR(bytes(16))).encryptor()
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
    return primitives("asymmetric.x25519").X25519PrivateKey.generate().private_bytes_raw()


def public(key: bytes) -> bytes:
    """Return the public key of a private key, 32 bytes."""
    return primitives("asymmetric.x25519").X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


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
    x25519 = primitives("asymmetric.x25519")
    try:
        secret = x25519.X25519PrivateKey.from_private_bytes(key).exchange(
            x25519.X25519PublicKey.from_public_bytes(other)
        )
    except ValueError:
        raise ProtocolError("a public key is of low order, or does not have 32 bytes") from None
    return derive(secret, purpose)


def derive(secret: bytes, purpose: bytes) -> bytes:
    """Return 32 bytes for a purpose from the X25519 secret of two clients, by HKDF-SHA256."""
    info, sha256 = b"turnout secagg " + purpose, primitives("hashes").SHA256()
    return primitives("kdf.hkdf").HKDF(algorithm=sha256, length=SEED_BYTES, salt=None, info=info).derive(secret)


@lru_cache(maxsize=1 << 14)  # the neighbors of a client check its keys, and so does the server
def check_public(*keys: bytes) -> None:
    """Validate public keys.

    Raises:
        ProtocolError: if a key has low order, another length than 32 bytes, or is not on the curve but on its twist, for
            which `turnout.protocol.secure.evidence` has no proof.
    """
    for key in keys:
        agree(new_key(), key, b"check")
        if curve.lift(key) is None:
            raise ProtocolError("a public key is not on the curve")


def pairwise(key: bytes, other: bytes, number: int, other_number: int) -> bytes:
    """Return the seed of the pairwise mask of two clients, the same for both."""
    low, high = sorted((number, other_number))
    return agree(key, other, b"mask %d %d" % (low, high))


def primitives(module: str) -> Any:
    """Import a module of cryptographic primitives.

    Raises:
        ConfigurationError: if the package cryptography is not installed; the message names the extra.
    """
    return imported(f"cryptography.hazmat.primitives.{module}", "a secure sum", ".[secure]", "cryptography")
