"""Steps that are traced once and replayed. Only this folder uses undocumented parts of PyTorch."""
