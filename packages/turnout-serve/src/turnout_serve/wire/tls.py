"""Read certificates and keys, with errors that name the file."""

from __future__ import annotations

import ssl
from pathlib import Path

from turnout.core.checks import ConfigurationError


def load_pair(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    """Load a certificate and its private key; without a key, it is in the file of the certificate.

    Raises:
        ConfigurationError: if they cannot be used.
    """
    try:
        context.load_cert_chain(certificate, key, lambda: "")
    except (OSError, ssl.SSLError) as error:
        files = f"{certificate} and {key}" if key is not None else str(certificate)
        raise ConfigurationError(
            f"certificate and key: {files} cannot be used ({error}): needed a certificate and its own private key in PEM "
            "format, without a passphrase"
        ) from None


def load_authority(context: ssl.SSLContext, name: str, file: Path) -> None:
    """Trust the certificates in a file, and those that they have signed.

    Args:
        context: context that trusts them.
        name: name of the option, for the message.
        file: file of certificates.

    Raises:
        ConfigurationError: if it contains none.
    """
    try:
        context.load_verify_locations(file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"{name}: {file} cannot be used ({error}): needed certificates in PEM format"
        ) from None
