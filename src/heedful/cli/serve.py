"""`heedful serve`: a model over HTTP."""

import errno
import os
import socket
import subprocess
import sys
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from heedful.errors import ConfigError, HeedfulError, did_you_mean, require

if TYPE_CHECKING:
    from heedful.bundle import Bundle

ENGINES = ("ctranslate2", "onnx", "torch")
CACHE = "served"  # folder beside the model in which exports are kept
LOCAL = ("127.0.0.1", "::1", "localhost")


def serve(
    model: str = typer.Argument(..., help="A model directory, a run, or an export."),
    host: str = typer.Option("127.0.0.1", envvar="HEEDFUL_HOST", help="The address to listen at."),
    port: int = typer.Option(5000, envvar="HEEDFUL_PORT", help="The port to listen at."),
    keys: str | None = typer.Option(None, envvar="HEEDFUL_KEYS", help="A file of hashed keys: who may ask."),
    new_key: str | None = typer.Option(None, help="Make a key of this name, show it once, and stop."),
    anyone: bool = typer.Option(False, "--anyone", envvar="HEEDFUL_ANYONE", help="Serve other machines without keys."),
    threads: int | None = typer.Option(None, envvar="HEEDFUL_THREADS", help="Of the engine (default: one a core)."),
    queue: float = typer.Option(2.0, envvar="HEEDFUL_QUEUE", help="Seconds that a request may wait for its turn."),
    timeout: float = typer.Option(30.0, envvar="HEEDFUL_TIMEOUT", help="Seconds that a request may take in all."),
    tokens: int = typer.Option(4096, envvar="HEEDFUL_TOKENS", help="Of one request, at most."),
    rate: float = typer.Option(20_000, envvar="HEEDFUL_RATE", help="Tokens a second for one client."),
    burst: float = typer.Option(200_000, envvar="HEEDFUL_BURST", help="Tokens that a client may use at once."),
    grace: float = typer.Option(30.0, envvar="HEEDFUL_GRACE", help="Seconds to finish in, when told to stop."),
    engine: str | None = typer.Option(
        None,
        envvar="HEEDFUL_ENGINE",
        help="Of a model directory: ctranslate2, onnx or torch (default: what is quickest).",
    ),
    rounding: str | None = typer.Option(
        None,
        envvar="HEEDFUL_ROUNDING",
        help="Of the export made for CTranslate2 (default: int8, if it stands its proof).",
    ),
    probes: str | None = typer.Option(None, help="Sentences to prove that export with, where the run is gone."),
    inspect: bool | None = typer.Option(
        None,
        "--inspect/--no-inspect",
        envvar="HEEDFUL_INSPECT",
        help="Of a model directory: let the page show attention and search (default: on this machine only).",
    ),
    show: bool = typer.Option(False, "--open", help="Open the page in the browser."),
) -> None:
    """Serve a model: its own API, and those of LibreTranslate, DeepL and Google; and a page to try it.

    \b
      heedful serve my-model
      heedful serve my-model --host 0.0.0.0 --keys keys.txt
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    require("fastapi", extra="serve", whose="heedful serve")
    require("uvicorn", extra="serve", whose="heedful serve")
    from heedful.serve.auth import create_key, read_keys

    if new_key is not None:
        if keys is None:
            raise ConfigError("say where the key goes: --keys keys.txt")
        typer.echo(f"{create_key(Path(keys), new_key)}\nIt is shown this once, and stored as a hash in {keys}.")
        return
    known = read_keys(Path(keys)) if keys else {}
    if not known and not anyone and host not in LOCAL:
        raise ConfigError(
            f"--host {host} can be reached by others: give --keys keys.txt (heedful serve MODEL --keys keys.txt "
            "--new-key NAME makes one), or --anyone if everybody may ask"
        )
    for name, value in (("--queue", queue), ("--timeout", timeout), ("--tokens", tokens), ("--rate", rate),
                        ("--burst", burst), ("--threads", threads or 1)):  # fmt: skip
        if not value > 0:
            raise ConfigError(f"{name} must be above 0, not {value}")
    if not grace >= 0:
        raise ConfigError(f"--grace must be 0 or more, not {grace}")
    if taken(host, port):
        raise HeedfulError(f"port {port} is in use: another server may be running. Take another one: --port {port + 1}")
    folder = servable(Path(model), engine, rounding, probes)
    from heedful.bundle import is_export
    from heedful.serve.request_queue import QueueLimits
    from heedful.serve.server import run_server
    from heedful.serve.state import ServerSettings

    wanted = host in LOCAL if inspect is None else inspect
    looks = wanted and not known and not is_export(Path(model)) and find_spec("torch") is not None
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def ready(about: dict[str, Any]) -> None:
        typer.echo(f"heedful serve  {about['source']} \u2192 {about['target']}  {about['engine']}  at {address}")
        if show:
            webbrowser.open(address)

    settings = ServerSettings(
        limits=QueueLimits(max_wait_seconds=queue, max_request_tokens=tokens),
        keys=known,
        allowed_hosts=None if known or anyone else frozenset((*LOCAL, host)),
        request_timeout_seconds=timeout,
        client_tokens_per_second=rate,
        client_burst_tokens=burst,
        shutdown_grace_seconds=grace,
        inspect_dir=Path(model) if looks else None,
    )
    run_server(folder, host, port, settings, threads, ready)


def taken(host: str, port: int) -> bool:
    """Whether somebody listens there already."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        if os.name != "nt":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except socket.gaierror:
            raise ConfigError(f"--host {host} is no address of this machine") from None
        except PermissionError:
            raise ConfigError(f"--port {port} belongs to the system: take one above 1023") from None
        except OverflowError:
            raise ConfigError(f"--port {port}: ports go from 1 to 65535") from None
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise ConfigError(f"--host {host} is no address of this machine") from None
            return True
    return False


def servable(model: Path, engine: str | None, rounding: str | None, probes: str | None) -> Path:
    """An export: what was given, or one that is made of it, with its proof, and kept for the next time.

    Made by a process of its own, so that the server's never holds PyTorch; what was given is opened by its engine's.
    With `torch` the model directory itself is served.
    """
    if engine not in (None, *ENGINES):
        raise ConfigError(f"unknown engine `{engine}`" + did_you_mean(str(engine), ENGINES))
    from heedful.bundle import is_export, open_bundle
    from heedful.data.store import MANIFEST
    from heedful.files import file_sha256

    if is_export(model):
        return model
    bundle = open_bundle(model)
    require("torch", extra="train", whose="making the export that is served (an export is served without it)")
    if engine == "torch":
        return bundle.folder
    to = engine or quickest(bundle)
    usual = ("int8", "float32") if to == "ctranslate2" else ("float32",)
    run = bundle.folder.parent if bundle.folder.name == "model" else bundle.folder
    begin = f"{run.name}-{to}-{file_sha256(bundle.folder / MANIFEST)[:12]}"
    places = {one: bundle.folder.with_name(CACHE) / f"{begin}-{one}" for one in ((rounding,) if rounding else usual)}
    for place in filter(is_export, places.values()):
        return place
    for one, place in places.items():
        command = [sys.executable, "-m", "heedful", "export", str(bundle.folder), "--out", str(place), "--to", to]
        command += ["--rounding", one, *(["--probes", probes] if probes else [])]
        code = subprocess.run(command, stdout=sys.stderr, check=False).returncode
        if not code:
            return place
    raise typer.Exit(code)


def quickest(bundle: "Bundle") -> str:
    """CTranslate2, if it knows such models."""
    from heedful.exporters.transformer import require_standard_transformer

    try:
        require_standard_transformer(bundle.model, "CTranslate2")
    except HeedfulError:
        return "onnx"
    return "ctranslate2"
