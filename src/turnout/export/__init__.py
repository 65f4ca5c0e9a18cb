"""Write trained models to files for other programs, with a card that describes them."""
