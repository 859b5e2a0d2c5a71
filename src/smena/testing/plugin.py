"""The pytest plugin: loaded by pytest wherever Smena is installed."""
