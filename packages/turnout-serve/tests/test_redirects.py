"""The administrator's token goes to the server that was named, and not where that sends it."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from turnout_serve.wire.administrator import server_token

from .test_network import cli


class Listener:
    """A server that records the tokens of requests, and redirects them if it knows where to."""

    def __init__(self, status=200, target=None):
        self.tokens = tokens = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                tokens.append(self.headers.get("authorization"))
                self.send_response(status)
                if target is not None:
                    self.send_header("location", f"{target}{self.path}")
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def do_POST(self):
                self.do_GET()

            def log_message(self, format, *args):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("words", [("clients",), ("status",), ("query", "count")], ids=lambda it: it[0])
def test_redirects_are_not_followed(folder, words, status):
    token = server_token(folder)
    other = Listener()
    named = Listener(status, other.url)
    try:
        name, *more = words
        said = cli(name, named.url, *more, "--token", folder / "admin.token", code=2 if name == "status" else 1)
        assert f"it answers {status}" in said
        assert set(named.tokens) == {f"Bearer {token}"}
        assert other.tokens == []
    finally:
        named.close()
        other.close()
