"""Tables and figures of papers, declared in TOML files: what to run, what the paper found, what became of its claims."""
