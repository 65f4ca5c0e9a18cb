"""Tables and figures of papers, declared in TOML files: and the verdicts of runs on their claims."""
