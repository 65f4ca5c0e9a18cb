"""The slot of what clients keep of a model for themselves."""
