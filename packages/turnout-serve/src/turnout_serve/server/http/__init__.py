"""Answer requests over HTTP: routes, limits and the pages of a server."""
