"""How fast a federation trains here, beside what this machine can do: the measurements of ``turnout bench``."""
