"""Many runs side by side: several algorithms, several seeds, one folder."""
