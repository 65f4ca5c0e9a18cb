"""Record what happens on a server as entries of a journal, apply them, and replay them."""
