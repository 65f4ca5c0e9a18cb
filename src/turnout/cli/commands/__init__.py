"""The options of each command. Its work is imported when it runs, so that help and completion are fast."""
