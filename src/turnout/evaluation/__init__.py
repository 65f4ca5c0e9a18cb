"""How well a model serves its clients: scores of every example, and how evenly they fall."""
