"""Whether a client in any language does what docs/protocol.md asks: a server that misbehaves on purpose, and a judge."""
