"""What each command takes. What it does is imported when it runs, so that help and completion come at once."""
