"""Read and write the folder of a run: tables, journal, checkpoint, configuration and environment."""
