"""Words for people in place of those of the protocol, in tables of the command line and on the page of a server."""

WORDS = {
    "there": "connected",
    "at work": "working",
    "died": "given up by the client, or refused",
    "left": "disconnected",
    "unsummed": "in no secure sum",
}
"""Words for states of clients, and for reasons for which tasks end without being used; others are plain in themselves."""
