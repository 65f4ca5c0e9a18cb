"""The addresses of a server, in its folder for the commands of its administrator."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import uvicorn

from turnout.record.contents import writable
from turnout.record.storage import replace_files
from turnout_serve.server.options import Options
from turnout_serve.server.store.store import Store
from turnout_serve.wire.administrator import ADDRESS_FILE, CERTIFICATE_FILE


def note_address(store: Store, server: uvicorn.Server, options: Options) -> str:
    """Write the addresses of a server into its folder, for the commands of its administrator, and its certificate.

    The first address is that on this machine, and the second the public one, if there is one.

    Returns:
        The address at which it listens.

    Raises:
        CheckpointError: if they cannot be written.
    """
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    host = f"[{host}]" if ":" in host else host
    url = f"{'http' if options.certificate is None else 'https'}://{host}:{port}"
    addresses = [local(url), *([] if options.public_url is None else [options.public_url])]
    texts = {ADDRESS_FILE: "".join(f"{address}\n" for address in addresses)}
    if options.certificate is not None:
        texts[CERTIFICATE_FILE] = own_certificate(options.certificate)
    else:
        with writable([store.folder / CERTIFICATE_FILE]):
            (store.folder / CERTIFICATE_FILE).unlink(missing_ok=True)  # of an earlier start
    replace_files(
        {store.folder / name: partial(Path.write_text, data=text, encoding="utf-8") for name, text in texts.items()}
    )
    return url


def local(url: str) -> str:
    """Return the address on this machine of a server that listens at all of its addresses.

    >>> local("http://0.0.0.0:8470"), local("https://[::]:1"), local("http://10.0.0.7:1")
    ('http://127.0.0.1:8470', 'https://[::1]:1', 'http://10.0.0.7:1')
    """
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def own_certificate(path: Path) -> str:
    """Return the first certificate of a PEM file, that of the server, without those of authorities and a key."""
    found = re.search(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", path.read_text("utf-8"), re.DOTALL)
    return "" if found is None else f"{found[0]}\n"
