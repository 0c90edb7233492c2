# SPDX-License-Identifier: Apache-2.0
"""The DaemonSet's own containers, started as the manifest says: user, group, capabilities, mounts, settings.

What a cluster adds is not here: the kubelet, admission, a read-only root, the GPU runtime.
"""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.certificates import self_signed
from support.images import Image, buildah, engine_environment, exactly
from support.packages import ROOT

from hotstage.cli.demo.layout import free_ports

pytestmark = [pytest.mark.image, pytest.mark.slow, pytest.mark.timeout(600)]

READY_SECONDS = 30.0
Document = dict[str, Any]


def documents(path: str) -> list[Document]:
    return list(yaml.safe_load_all((ROOT / "deploy/kubernetes" / path).read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def pod() -> Document:
    (daemonset,) = documents("modern/daemonset.yaml")
    return daemonset["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, pod: Document, port: int) -> dict[str, Path]:
    """Each volume's name → what stands for it on this machine."""
    folder = tmp_path_factory.mktemp("node")
    places = {volume["name"]: folder / volume["name"] for volume in pod["volumes"]}
    for volume in pod["volumes"]:
        host = volume.get("hostPath", {})
        if "type" not in host and host:
            places[volume["name"]] = Path(host["path"])  # the kernel's own, only read
        else:
            places[volume["name"]].mkdir()
    (config,) = documents("base/agent-config.yaml")
    text = config["data"]["config.toml"].replace("0.0.0.0:9178", f"127.0.0.1:{port}")
    (places["config"] / "config.toml").write_text(text)
    (places["token"] / "token").write_text("a token that nobody else has\n")
    certificate, key = self_signed(folder, "hotstage-agent.hotstage.svc")
    Path(certificate).rename(places["tls"] / "tls.crt")
    Path(key).rename(places["tls"] / "tls.key")
    return places


def options(pod: Document, container: Document, node: dict[str, Path]) -> tuple[str, ...]:
    """The engine's options for one of the pod's containers."""
    context = container["securityContext"]
    added = tuple(f"CAP_{name}" for name in context["capabilities"].get("add", ()))
    user = f"{context['runAsUser']}:{pod['securityContext']['fsGroup']}"
    mounts = []
    for mount in container["volumeMounts"]:
        source = node[mount["name"]] / mount.get("subPath", "")
        mode = "ro" if mount.get("readOnly") else "rw"
        mounts += ["--volume", f"{source}:{mount['mountPath']}:{mode}"]
    return (*exactly(added, user), *mounts)


def named(pod: Document, name: str) -> Document:
    (found,) = [
        each for part in ("initContainers", "containers") for each in pod[part] if each["name"] == name
    ]
    return found


@dataclass(frozen=True, slots=True)
class Started:
    process: subprocess.Popen[bytes]
    log: Path


@pytest.fixture(scope="module")
def agent(
    image: Image, pod: Document, node: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Started]:
    spec = named(pod, "agent")
    log = tmp_path_factory.mktemp("agent") / "log"
    with image.container() as container, log.open("wb") as stderr:
        command = image.command(container, *spec["args"], options=options(pod, spec, node))
        process = subprocess.Popen(command, env=engine_environment(), stderr=stderr)
        yield Started(process, log)
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def ask(node: dict[str, Path], port: int, path: str) -> tuple[int, bytes]:
    trust = ssl.create_default_context(cafile=str(node["tls"] / "tls.crt"))
    try:
        with urllib.request.urlopen(f"https://127.0.0.1:{port}{path}", context=trust, timeout=3) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_the_notifiers_state_is_handed_over(image: Image, pod: Document, node: dict[str, Path]):
    spec = named(pod, "hand-over")
    with image.container() as container:
        done = buildah(
            "run",
            "--isolation",
            "chroot",
            *options(pod, spec, node),
            container,
            "--",
            *spec["command"],
            check=False,
        )
    assert done.returncode == 0, done.stderr
    state = node["notify-state"].stat()
    assert (state.st_uid, state.st_gid, state.st_mode & 0o777) == (65532, 65532, 0o700)


def test_the_agent_becomes_ready_over_tls(agent: Started, node: dict[str, Path], port: int):
    deadline, last = time.monotonic() + READY_SECONDS, ""
    while time.monotonic() < deadline:
        assert agent.process.poll() is None, agent.log.read_text()
        try:
            status, body = ask(node, port, "/readyz")
        except OSError as error:
            last = str(error)
        else:
            last = f"{status} {body.decode()}"
            if status == 200:
                return
        time.sleep(0.2)
    pytest.fail(f"waited {READY_SECONDS:.0f} s for /readyz: {last}")


def test_its_breakers_page_and_its_socket_are_on_the_node(agent: Started, node: dict[str, Path]):
    socket = (node["run"] / "agent.sock").stat()
    assert (socket.st_uid, socket.st_gid, socket.st_mode & 0o777) == (0, 65532, 0o660)
    assert (node["run"] / "breakers").stat().st_mode & 0o004


def test_the_notifier_reaches_the_agent_and_keeps_its_own_database(
    agent: Started, image: Image, pod: Document, node: dict[str, Path]
):
    spec = named(pod, "notify")
    with image.container() as container:
        command = image.command(container, *spec["args"], options=options(pod, spec, node))
        entry = command.index("--") + 1
        limited = [*command[:entry], "timeout", "--signal=TERM", "3", *command[entry:]]
        done = subprocess.run(limited, env=engine_environment(), capture_output=True, text=True, check=False)
    said = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert "notifier started" in [each["message"] for each in said]
    assert {each["level"] for each in said} == {"info"}, done.stderr
    assert (node["notify-state"] / "notify.db").stat().st_uid == 65532
