"""Test a client in any language against docs/protocol.md: a server that misbehaves on purpose, and a judge."""
