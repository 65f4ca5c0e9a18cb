"""Core definitions: types, pieces and their composition, client and server steps, the flat parameter vector, randomness."""
