"""Make tables, figures and reports of finished runs."""
