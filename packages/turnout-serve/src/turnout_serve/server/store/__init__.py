"""Store the journal, the models and the reports of a run in a database and files."""
