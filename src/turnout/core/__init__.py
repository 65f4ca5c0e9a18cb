"""What everything else is made of: types, pieces and how they compose, the two steps, the flat vector, randomness."""
