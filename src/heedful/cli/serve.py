"""`heedful serve`: serve one or more models over HTTP."""

import errno
import os
import socket
import ssl
import subprocess
import sys
import webbrowser
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.cli.renamed_options import check_environment
from heedful.errors import ConfigError, HeedfulError, did_you_mean, require

if TYPE_CHECKING:
    from heedful.bundle import Bundle
    from heedful.serve.state import ServerState

ENGINES = ("ctranslate2", "onnx", "torch")
EXPORT_CACHE = "served"  # a directory next to the model, or in the user's cache directory
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")


def serve(
    models: list[str] = typer.Argument(
        ...,
        metavar="MODEL...",
        help="One or more model directories, run directories, exports or samples: pt-en, ru-en, pt-en-gru.",
    ),
    host: str = typer.Option("127.0.0.1", envvar="HEEDFUL_HOST", help="The address to listen on."),
    port: int = typer.Option(5000, envvar="HEEDFUL_PORT", help="The port to listen on."),
    keys: str | None = typer.Option(None, envvar="HEEDFUL_KEYS", help="File with the hashes of allowed API keys."),
    new_key: str | None = typer.Option(None, help="Create an API key with this name, print it and exit."),
    no_auth: bool = typer.Option(
        False, "--no-auth", envvar="HEEDFUL_NO_AUTH", help="Allow requests from other machines without API keys."
    ),
    tls_cert: str | None = typer.Option(
        None, envvar="HEEDFUL_TLS_CERT", help="Serve HTTPS with this certificate (PEM file, with its chain)."
    ),
    tls_key: str | None = typer.Option(
        None, envvar="HEEDFUL_TLS_KEY", help="The private key of the certificate (PEM file, not encrypted)."
    ),
    threads: int | None = typer.Option(
        None, envvar="HEEDFUL_THREADS", help="Threads of each engine (default: the cores, divided among the models)."
    ),
    queue: float = typer.Option(
        2.0, envvar="HEEDFUL_QUEUE", help="Reject new requests while the queue has more than this many seconds of work."
    ),
    timeout: float = typer.Option(30.0, envvar="HEEDFUL_TIMEOUT", help="Maximum time for a request, in seconds."),
    tokens: int = typer.Option(4096, envvar="HEEDFUL_TOKENS", help="Maximum tokens of one request."),
    rate: float = typer.Option(20_000, envvar="HEEDFUL_RATE", help="Tokens per second for each client."),
    burst: float = typer.Option(
        200_000, envvar="HEEDFUL_BURST", help="Tokens that a client can use in a burst, above its rate."
    ),
    grace: float = typer.Option(
        30.0, envvar="HEEDFUL_GRACE", help="Maximum time to finish admitted requests at shutdown, in seconds."
    ),
    engine: str | None = typer.Option(
        None, envvar="HEEDFUL_ENGINE", help="For a model directory: ctranslate2, onnx or torch (default: the fastest)."
    ),
    quantization: str | None = typer.Option(
        None,
        envvar="HEEDFUL_QUANTIZATION",
        help="Quantization of the CTranslate2 export (default: int8 if it passes verification, else float32).",
    ),
    probes: str | None = typer.Option(
        None, help="File of sentences to verify the export with; needed if the run was deleted."
    ),
    inspect: bool | None = typer.Option(
        None,
        "--inspect/--no-inspect",
        envvar="HEEDFUL_INSPECT",
        help="For a model directory: offer inspection of attention and search (default: only for local hosts).",
    ),
    live: bool = typer.Option(
        False,
        "--live",
        envvar="HEEDFUL_LIVE",
        help="For a model directory: offer a page that runs the model in the browser, which gives the model's weights "
        "to every visitor.",
    ),
    show: bool = typer.Option(False, "--open", help="Open the page in the browser."),
) -> None:
    """Serve one or more models over HTTP: a web page and four APIs.

    \b
      heedful serve my-model
      heedful serve pt-en en-ru
      heedful serve my-model --host 0.0.0.0 --keys keys.txt
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    require("fastapi", extra="serve", whose="heedful serve")
    require("uvicorn", extra="serve", whose="heedful serve")
    check_environment()
    from heedful.serve.auth import create_key, read_keys

    paths = name_models(models)
    if new_key is not None:
        if keys is None:
            raise ConfigError("--new-key needs a file to add the key to: --keys keys.txt")
        for path in paths.values():
            check_model(path)  # a typing error must not leave a key behind
        typer.echo(f"{create_key(Path(keys), new_key)}\nCopy the key now: {keys} stores only its hash.")
        return
    allowed_keys = read_keys(Path(keys)) if keys else {}
    if not allowed_keys and not no_auth and host not in LOCAL_HOSTS:
        raise ConfigError(
            f"--host {host} accepts requests from other machines: add --keys keys.txt, or --no-auth to "
            "serve everyone. To create a key: heedful serve MODEL --keys keys.txt --new-key NAME"
        )
    if live and allowed_keys:
        raise ConfigError(
            "--live gives the model's weights to everyone who opens the page, without a key: remove --live or --keys"
        )
    for name, value in (("--queue", queue), ("--timeout", timeout), ("--tokens", tokens), ("--rate", rate),
                        ("--burst", burst), ("--threads", threads or 1)):  # fmt: skip
        if not value > 0:
            raise ConfigError(f"{name} must be above 0, not {value}")
    if not grace >= 0:
        raise ConfigError(f"--grace must be 0 or more, not {grace}")
    certificate = check_certificate(tls_cert, tls_key)
    if is_port_taken(host, port):
        raise HeedfulError(f"port {port} is in use: another server may be running. Use another port: --port {port + 1}")
    from heedful.bundle import is_export

    live_pages = {name: find_or_make_live_page(path) for name, path in paths.items() if live}
    folders = {name: find_or_make_export(path, engine, quantization, probes) for name, path in paths.items()}
    from heedful.serve.request_queue import QueueLimits
    from heedful.serve.server import Listener, run_server
    from heedful.serve.state import ServerSettings

    if inspect is None:
        inspect = host in LOCAL_HOSTS
    can_inspect = inspect and not allowed_keys and find_spec("torch") is not None
    address = f"{'https' if certificate else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    def handle_ready(state: "ServerState") -> None:
        for line in list_served_routes(state, address):
            typer.echo(line)
        if show:
            webbrowser.open(address)

    settings = ServerSettings(
        limits=QueueLimits(max_wait_seconds=queue, max_request_tokens=tokens),
        keys=allowed_keys,
        keys_file=Path(keys) if keys else None,
        allowed_hosts=None if allowed_keys or no_auth else frozenset((*LOCAL_HOSTS, host)),
        request_timeout_seconds=timeout,
        client_tokens_per_second=rate,
        client_burst_tokens=burst,
        shutdown_grace_seconds=grace,
        inspect_dirs={name: path for name, path in paths.items() if can_inspect and not is_export(path)},
        live_pages=live_pages,
    )
    threads = threads or share_cores(len(folders))
    run_server(folders, Listener(host, port, certificate), settings, threads, handle_ready)


def name_models(models: list[str]) -> dict[str, Path]:
    """Name -> path of each model; its name is that of its directory (of the run, for `run/model`)."""
    paths: dict[str, Path] = {}
    for model in models:
        path = Path(model).absolute()
        name = path.parent.name if path.name == "model" else path.name
        if name in paths:
            raise ConfigError(
                f"two models have the name `{name}`: {paths[name]} and {model}. Serve each model once, and give "
                "their directories different names"
            )
        paths[name] = Path(model)
    return paths


def check_model(path: Path) -> None:
    """Raise HeedfulError if there is no model."""
    from heedful.bundle import is_export, open_bundle

    if not is_export(path):
        open_bundle(path)


def share_cores(num_models: int) -> int | None:
    """Threads of each engine; None, the engine's default of one per core, for a single model.

    Engines compute at the same time. Threads that share a core wait for each other, so each engine gets its own cores.
    """
    if num_models == 1:
        return None
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    num_cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, num_cores // num_models)


def list_served_routes(state: "ServerState", address: str) -> list[str]:
    """The lines that the command prints when the server accepts requests."""
    arrows = [
        f"{route.source} \u2192 {route.target}  "
        + (f"via {route.via}" if route.via else state.models[route.models[0]].supervisor.model_info["engine"])
        for route in chain(state.routes, *state.media_routes.values())
    ]
    if len(arrows) == 1:
        return [f"heedful serve  {arrows[0]}  at {address}"]
    return [f"heedful serve  {len(state.models)} models  at {address}", *(f"  {arrow}" for arrow in arrows)]


def check_certificate(cert: str | None, key: str | None) -> tuple[Path, Path] | None:
    """The files of --tls-cert and --tls-key; raise ConfigError if they cannot be used together."""
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        present, missing = ("--tls-cert", "--tls-key") if key is None else ("--tls-key", "--tls-cert")
        raise ConfigError(f"{present} needs {missing}: HTTPS needs a certificate and its private key")
    for option, name in (("--tls-cert", cert), ("--tls-key", key)):
        try:
            Path(name).read_bytes()
        except OSError as error:
            raise ConfigError(f"{option} {name} cannot be read: {error.strerror}") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=reject_encrypted_key)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"--tls-key {key} is not the private key of --tls-cert {cert}") from None
        raise ConfigError(
            f"--tls-cert {cert} and --tls-key {key} cannot be used: both must be PEM files, which begin with "
            "-----BEGIN; the certificate comes first in its file, before the chain"
        ) from None
    return Path(cert), Path(key)


def reject_encrypted_key() -> str:
    raise ConfigError(
        "--tls-key is encrypted, and the server cannot ask for a password. To decrypt it: openssl pkey -in KEY -out NEW"
    )


def is_port_taken(host: str, port: int) -> bool:
    """Whether another process listens on this address."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        if os.name != "nt":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except socket.gaierror:
            raise ConfigError(
                f"--host {host} is not an address of this machine: use 127.0.0.1 for this machine only, or "
                "0.0.0.0 for all of its addresses"
            ) from None
        except PermissionError:
            raise ConfigError(f"--port {port} is reserved for the system: use a port above 1023") from None
        except OverflowError:
            raise ConfigError(f"--port {port}: ports go from 1 to 65535") from None
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise ConfigError(
                    f"--host {host} is not an address of this machine: use 127.0.0.1 for this machine only, or "
                    "0.0.0.0 for all of its addresses"
                ) from None
            return True
    return False


def find_or_make_export(model: Path, engine: str | None, quantization: str | None, probes: str | None) -> Path:
    """Return the directory to serve: an export itself, or a new or cached export of the model.

    A separate process makes the export, so the server process never loads PyTorch. With the engine `torch`, the model
    directory itself is served.
    """
    if engine not in (None, *ENGINES):
        raise ConfigError(f"unknown engine `{engine}`" + did_you_mean(str(engine), ENGINES))
    from heedful.bundle import is_export, open_bundle
    from heedful.serve.protocol import require_servable

    if is_export(model):
        return model
    bundle = open_bundle(model)
    require_servable(bundle.description.input.kind, str(model))
    require("torch", extra="train", whose="serving a model directory (unlike serving an export)")
    to = engine or fastest_engine(bundle)
    if to == "torch":
        return bundle.folder
    defaults = ("int8", "float32") if to == "ctranslate2" else ("float32",)
    prefix = cached_path(bundle, to)
    folders = {
        name: prefix.with_name(f"{prefix.name}-{name}") for name in ((quantization,) if quantization else defaults)
    }
    for folder in filter(is_export, folders.values()):
        return folder
    for name, folder in folders.items():
        command = [sys.executable, "-m", "heedful", "export", str(bundle.folder), "--out", str(folder), "--to", to]
        command += ["--quantization", name, *(["--probes", probes] if probes else [])]
        code = subprocess.run(command, stdout=sys.stderr, check=False).returncode
        if not code:
            return folder
    raise typer.Exit(code)


def find_or_make_live_page(model: Path) -> Path:
    """The page that contains the model; made by a separate process, once per model and version of heedful."""
    import heedful
    from heedful.bundle import is_export, open_bundle

    if is_export(model):
        raise ConfigError(f"--live needs the model directory that {model} was exported from: serve that one")
    require("torch", extra="train", whose="heedful serve --live")
    bundle = open_bundle(model)
    page = cached_path(bundle, f"live-{heedful.__version__}")
    page = page.with_name(f"{page.name}.html")
    if not page.is_file():
        page.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "heedful", "inspect", str(bundle.folder), "--live", "--out", str(page)]
        result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
        if result.returncode:
            typer.echo(result.stderr, err=True, nl=False)
            raise typer.Exit(result.returncode)
    return page


def cached_path(bundle: "Bundle", kind: str) -> Path:
    """Where something made from a model is kept: its name has the hash of the model."""
    from heedful.data.store import MANIFEST
    from heedful.files import file_sha256

    run = bundle.folder.parent if bundle.folder.name == "model" else bundle.folder
    return export_cache(bundle.folder) / f"{run.name}-{kind}-{file_sha256(bundle.folder / MANIFEST)[:12]}"


def export_cache(model: Path) -> Path:
    """The directory for exports: next to the model, or in the user's cache directory if that is not possible.

    A sample is part of the installed package, in which heedful writes nothing even if it could.
    """
    from heedful.files import user_cache_dir
    from heedful.samples import find_sample

    cache = model.with_name(EXPORT_CACHE)
    can_write = os.access(cache if cache.exists() else cache.parent, os.W_OK)
    return cache if can_write and find_sample(model) is None else user_cache_dir() / EXPORT_CACHE


def fastest_engine(bundle: "Bundle") -> str:
    """Return ctranslate2 if it supports the model, else onnx; torch for models of pictures and recordings."""
    if bundle.description.input.kind != "text":
        return "torch"
    from heedful.exporters.transformer import require_standard_transformer

    try:
        require_standard_transformer(bundle.model, "CTranslate2")
    except HeedfulError:
        return "onnx"
    return "ctranslate2"
