"""The participation benchmark: declared cells, fairly tuned rules, and a table of rows that anybody can extend."""
