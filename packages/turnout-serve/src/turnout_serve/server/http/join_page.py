"""The page of ``turnout serve --page``, which turns a browser into a client."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from starlette.responses import HTMLResponse, Response

from turnout_serve.server.http.endpoints import PAGE_HEADERS
from turnout_serve.server.http.routes import route

_POLICY = PAGE_HEADERS["content-security-policy"].replace("script-src", "script-src 'self'")


class JoinPage:
    """The endpoints of the page and of its JavaScript client."""

    @route("GET", "/join", {200: ("text/html", "A page.")}, "anyone")
    async def join(self) -> Response:
        """Show a page that turns a browser into a client."""
        return HTMLResponse(_file("join.html"), headers={**PAGE_HEADERS, "content-security-policy": _POLICY})

    @route("GET", "/turnout.js", {200: ("text/javascript", "A module.")}, "anyone")
    async def module(self) -> Response:
        """Give the client for browsers and for Node."""
        headers = {"x-content-type-options": "nosniff", "cache-control": "no-cache"}
        return Response(_file("turnout.js"), headers=headers, media_type="text/javascript")


@cache
def _file(name: str) -> str:
    return files("turnout_serve.client").joinpath("javascript", name).read_text(encoding="utf-8")
