"""The HTTP server: a FastAPI process, and a worker process that runs the engine."""
