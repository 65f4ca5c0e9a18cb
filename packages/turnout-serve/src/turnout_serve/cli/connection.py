"""Options of the commands of the network that several of them share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from turnout.cli.command import option, options

if TYPE_CHECKING:
    from turnout_serve.client.connection import Connection


@options
class ConnectionOptions:
    """Options of the TLS connection to a server."""

    ca: Path | None = option("Certificate of the CA that signed the server's certificate.", "FILE")
    certificate: Path | None = option("Client certificate, if the server requires one.", "FILE")
    key: Path | None = option("Private key of the client certificate.", "FILE")

    def connection(self, url: str, timeout: float = 90.0, pinned: Path | None = None) -> Connection:
        """Return a connection to a server.

        Args:
            url: its address.
            timeout: seconds without a response of the server.
            pinned: certificate of the server itself; None trusts authorities.

        Raises:
            ConfigurationError: if an address is invalid.
        """
        from turnout_serve.client.connection import Connection

        return Connection(url.rstrip("/"), self.ca, self.certificate, self.key, timeout, pinned)


@options
class LogOption:
    """The option for the format of log messages."""

    logs: str = option("Format of log messages.", "text|json", "text", "--log-format")

    def write_log(self) -> None:
        """Start writing log messages to standard error, and notices and errors in the same format.

        Raises:
            ConfigurationError: for an unknown format.
        """
        from turnout.core.checks import known_name
        from turnout_serve.cli.logs import log_to_stderr

        known_name("form of the log", self.logs, ("text", "json"))
        log_to_stderr(self.logs)
