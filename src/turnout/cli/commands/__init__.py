"""Options of the commands. The implementation is imported when a command runs, so that help and completion are fast."""
