"""A server in a thread, with a client."""

import json
import socket
import threading
import time
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import uvicorn

from heedful.serve.app import create_app
from heedful.serve.state import ServerSettings
from heedful.serve.supervisor import WorkerSupervisor


class Running:
    """An application in a thread, and a client; `models` is a directory, or several by name."""

    def __init__(self, models, http="h11", **settings):
        named = models if isinstance(models, dict) else {models.name: models}
        supervisors = [WorkerSupervisor(folder, name=name, threads=1) for name, folder in named.items()]
        self.supervisor = supervisors[0]
        self.app = create_app(supervisors if len(supervisors) > 1 else self.supervisor, ServerSettings(**settings))
        config = uvicorn.Config(self.app, port=0, log_level="error", http=http)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.thread.join(30)

    def get(self, path):
        with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as response:
            return response.read().decode()

    def post(self, path, tree, headers=(), form=False):
        data = (
            urlencode(tree, doseq=True).encode()
            if form
            else tree
            if isinstance(tree, bytes)
            else json.dumps(tree).encode()
        )
        kind = "application/x-www-form-urlencoded" if form else "application/json"
        request = Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": kind, **dict(headers)})
        try:
            with urlopen(request, timeout=30) as response:
                return response.status, json.load(response), dict(response.headers)
        except HTTPError as error:
            return error.code, json.load(error), dict(error.headers)

    def connected(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)

    def metric(self, name):
        return next(
            float(line.rsplit(" ", 1)[1]) for line in self.get("/metrics").splitlines() if line.startswith(name)
        )

    def wait_for(self, name, value, seconds=20):
        until = time.monotonic() + seconds
        while (found := self.metric(name)) != value:
            assert time.monotonic() < until, f"{name} is {found} after {seconds} s, not {value}"
            time.sleep(0.02)

    @property
    def pid(self):
        return json.loads(self.get("/readyz"))["pid"]
