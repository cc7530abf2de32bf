"""The service around the engine: admission over HTTPS, health and metrics, the command line, the composition root."""
