"""A port for a server of a test."""

import socket


def free_port(host: str = "127.0.0.1") -> int:
    """Where nobody listens."""
    with socket.socket() as listening:
        listening.bind((host, 0))
        return int(listening.getsockname()[1])
