"""Tables, figures and reports of finished runs."""
