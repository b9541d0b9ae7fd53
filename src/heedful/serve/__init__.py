"""The HTTP server: FastAPI in front of a worker process that runs the engine."""
