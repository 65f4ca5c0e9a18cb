"""``turnout serve``: train with real clients over HTTP."""

from __future__ import annotations

from turnout.cli.command import command
from turnout.core.checks import known_name
from turnout_serve.cli.serve_options import ServeOptions


@command(ServeOptions)
def serve(options: ServeOptions) -> None:
    """Train with real clients over HTTP. After a stop or a crash, the same command resumes.

    Examples:
        turnout serve run.toml --min-clients 10
        turnout serve --algorithm fedau data.name=digits data.num_clients=20 rounds=50
        turnout serve run.toml --evaluate-every 10 --evaluate-share 0.2
        turnout serve algorithm.name=fedau model.name=mlp rounds=50 --inputs 64 --classes 10
        turnout serve run.toml --inputs auto --classes 10
        turnout serve own.py:EXPERIMENT --host 0.0.0.0 --certificate cert.pem --key key.pem --enrollment codes
        turnout serve algorithm.name=fedau data.name=digits --page --host 0.0.0.0
        turnout serve run.toml --folder runs/served --database postgresql://turnout@localhost/turnout
    """
    from turnout.engine.allocator import SERVER, keep_large_buffers
    from turnout_serve.cli.serving import serve_clients

    keep_large_buffers(SERVER)  # smaller than for other commands, because a server is mostly idle
    known_name("enrollment", options.enrollment, ("open", "codes"))
    options.use_threads()
    serve_clients(options)
