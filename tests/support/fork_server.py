"""`heedful` for the shells of tests, without the seconds that importing PyTorch takes each time.

    python fork_server.py SOCKET               a server, which has imported everything; prints a line when ready
    python fork_server.py SOCKET ARGUMENT...   stands in for `heedful`: sends its arguments, folder, environment and
                                           streams to the server, and exits with the code that comes back

For every client the server forks, and the fork is `heedful ARGUMENT...`: the command line's own `main`, one process a
command, so pipes between them work.
"""

import contextlib
import json
import os
import signal
import socket
import sys

STREAMS = (0, 1, 2)


def serve(place: str) -> None:
    """Fork for whoever comes, until killed."""
    import ctranslate2  # noqa: F401
    import polars  # noqa: F401
    import torch

    import heedful.cli.app
    import heedful.exporters.api
    import heedful.inspection.record
    import heedful.training.api  # noqa: F401

    torch.set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(place)
        door.listen()
        print("ready", flush=True)
        while True:
            line, _ = door.accept()
            if not os.fork():
                door.close()
                run(line)
            line.close()


def run(line: socket.socket) -> None:
    """Be the command, and tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, streams, _, _ = socket.recv_fds(line, 1 << 16, len(STREAMS))
    while part := line.recv(1 << 16):
        data += part
    told = json.loads(data)
    for given, wanted in zip(streams, STREAMS, strict=True):
        os.dup2(given, wanted)
        os.close(given)
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["environment"])
    sys.argv = ["heedful", *told["arguments"]]
    from heedful.cli import main

    code = 1
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    line.sendall(str(code).encode())
    os._exit(code)


def ask(place: str, arguments: list[str]) -> int:
    """The exit code of `heedful ARGUMENT...`; 70 where it was killed before it could tell."""
    told = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}  # noqa: PTH109
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(place)
        socket.send_fds(line, [b" "], STREAMS)
        line.sendall(json.dumps(told).encode())
        line.shutdown(socket.SHUT_WR)
        return int(line.recv(16) or 70)


if __name__ == "__main__":
    if sys.argv[2:]:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
    serve(sys.argv[1])
