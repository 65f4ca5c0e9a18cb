"""Keep what a run leaves behind: tables, journal, checkpoint, and the files that describe it."""
