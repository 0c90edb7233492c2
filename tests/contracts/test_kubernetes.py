# SPDX-License-Identifier: Apache-2.0
"""The manifests: valid Kubernetes, in step with each other and with hotstage's verbs, keys, ports, rights."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import msgspec
import pytest
import yaml

from hotstage import __version__
from hotstage.api.routes import ROUTES
from hotstage.cli.main import VERBS
from hotstage.config.settings import Config
from hotstage.host.capabilities import OLD_KERNELS, USUAL

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/kubernetes"
TIERS = {"modern": USUAL, "legacy": OLD_KERNELS, "privileged": None}
OLDEST, NEWEST = "1.30", kubernetes_validate.latest_version()
Document = dict[str, Any]


@cache
def applied(folder: str) -> tuple[Document, ...]:
    """All documents of one kustomization; only `resources` is used, so nothing needs rendering."""
    kustomization = yaml.safe_load((FOLDER / folder / "kustomization.yaml").read_text(encoding="utf-8"))
    assert set(kustomization) == {"apiVersion", "kind", "resources"}
    found: list[Document] = []
    for resource in kustomization["resources"]:
        path = FOLDER / folder / resource
        if path.is_dir():
            found += applied(path.resolve().name)
        else:
            found += yaml.safe_load_all(path.read_text(encoding="utf-8"))
    return tuple(found)


def one(folder: str, kind: str, name: str) -> Document:
    (found,) = [each for each in applied(folder) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod(document: Document) -> Document:
    return document["spec"]["template"]["spec"]


def container(tier: str, name: str) -> Document:
    (found,) = [
        each for each in pod(one(tier, "DaemonSet", "hotstage-agent"))["containers"] if each["name"] == name
    ]
    return found


def workloads() -> Iterator[Document]:
    for tier in TIERS:
        yield from (each for each in applied(tier) if each["kind"] in ("DaemonSet", "Deployment"))


def all_containers() -> list[Document]:
    return [
        each
        for work in workloads()
        for part in ("initContainers", "containers")
        for each in pod(work).get(part, ())
    ]


def settings(name: str) -> Config:
    text = one("base", "ConfigMap", name)["data"]["config.toml"]
    return msgspec.convert(tomllib.loads(text), Config)


def unit(name: str) -> dict[str, str]:
    text = (ROOT / f"deploy/systemd/{name}.service").read_text(encoding="utf-8")
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


def test_the_generated_files_are_what_their_sources_say():
    command = [sys.executable, str(FOLDER / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("tier", TIERS)
def test_every_document_is_valid_kubernetes(tier: str, version: str):
    for document in applied(tier):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("tier", TIERS)
def test_a_tier_grants_what_the_agents_table_says_and_nothing_else(tier: str):
    context = container(tier, "agent")["securityContext"]
    if TIERS[tier] is None:
        assert context["privileged"] is True
        assert "capabilities" not in context
        return
    assert context["capabilities"]["drop"] == ["ALL"]
    assert {f"CAP_{name}" for name in context["capabilities"]["add"]} == set(TIERS[tier])
    assert not context.get("privileged")


def test_the_modern_tier_grants_what_the_service_has():
    added = {f"CAP_{name}" for name in container("modern", "agent")["securityContext"]["capabilities"]["add"]}
    assert added == set(unit("hotstage-agent")["AmbientCapabilities"].split())


def test_kubernetes_takes_no_ban_on_escalation_beside_sys_admin():
    assert "allowPrivilegeEscalation" not in container("legacy", "agent")["securityContext"]
    assert container("modern", "agent")["securityContext"]["allowPrivilegeEscalation"] is False


def test_only_the_agent_has_any_right():
    others = [each for each in all_containers() if each["name"] != "agent"]
    assert {each["name"] for each in others} == {"hand-over", "notify", "explorer"}
    for each in others:
        assert each["securityContext"]["capabilities"] == (
            {"drop": ["ALL"], "add": ["CHOWN"]} if each["name"] == "hand-over" else {"drop": ["ALL"]}
        )
        assert each["securityContext"]["allowPrivilegeEscalation"] is False
    assert all(each["securityContext"]["readOnlyRootFilesystem"] for each in all_containers())


def test_the_explorer_keeps_to_the_restricted_standard_that_its_namespace_enforces():
    explorer = pod(one("base", "Deployment", "hotstage-explorer"))
    namespace = one("base", "Namespace", "hotstage-explorer")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert not {"hostPID", "hostNetwork", "hostIPC"} & set(explorer)
    assert explorer["securityContext"]["runAsNonRoot"] is True
    assert explorer["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert all(set(volume) & {"configMap", "secret", "emptyDir"} for volume in explorer["volumes"])


def test_nobody_gets_a_token_of_the_kubernetes_api():
    assert not [each for each in applied("modern") if "Role" in each["kind"]]
    assert all(pod(work)["automountServiceAccountToken"] is False for work in workloads())


@pytest.mark.parametrize("name", ["hotstage-agent", "hotstage-explorer"])
def test_the_settings_are_keys_of_hotstage(name: str):
    assert settings(name) != Config()


def test_what_is_started_is_a_verb_and_the_version_is_this_one():
    started = [each["args"][0] for each in all_containers() if "args" in each]
    assert set(started) == {"agent", "notify", "explore"} <= set(VERBS)
    assert {each["image"] for each in all_containers()} == {f"hotstage:{__version__}"}


def test_ports_are_those_that_the_settings_open():
    (api,) = container("modern", "agent")["ports"]
    assert settings("hotstage-agent").http.listen == f"0.0.0.0:{api['containerPort']}"
    (page,) = pod(one("base", "Deployment", "hotstage-explorer"))["containers"][0]["ports"]
    assert settings("hotstage-explorer").explore.listen == f"127.0.0.1:{page['containerPort']}"
    (served,) = one("base", "Service", "hotstage-agent")["spec"]["ports"]
    assert (served["port"], served["targetPort"]) == (api["containerPort"], api["name"])


def test_an_open_address_has_a_token_and_a_certificate_and_all_files_are_mounted():
    http, page, notify = (getattr(settings("hotstage-agent"), part) for part in ("http", "page", "notify"))
    store = settings("hotstage-agent").store
    agent = [mount["mountPath"] for mount in container("modern", "agent")["volumeMounts"]]
    files = (http.token_file, http.tls_certificate_file, http.tls_key_file, http.socket, page.path)
    for file in (*files, f"{store.directory}/hotstage.db"):
        assert file is not None
        assert any(file.startswith(f"{place}/") for place in agent), file
    notifier = [mount["mountPath"] for mount in container("modern", "notify")["volumeMounts"]]
    assert notify.directory in notifier
    assert any(notify.agent_socket.startswith(f"{place}/") for place in notifier)


def test_probes_ask_what_is_answered_without_the_token():
    public = {route.path for route in ROUTES if route.is_public}
    agent = container("modern", "agent")
    asked = {agent[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == public == {"/healthz", "/readyz"}


def test_service_monitor_and_policy_select_the_agents_and_their_port():
    labels = one("modern", "DaemonSet", "hotstage-agent")["spec"]["template"]["metadata"]["labels"].items()
    service = one("base", "Service", "hotstage-agent")["spec"]["selector"]
    monitor = one("podmonitor", "PodMonitor", "hotstage-agent")["spec"]
    assert service.items() <= labels
    assert monitor["selector"]["matchLabels"].items() <= labels
    assert dict(labels)[monitor["jobLabel"]] == "hotstage"
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True
    assert endpoint["path"] in {route.path for route in ROUTES}
    (rule,) = one("base", "NetworkPolicy", "hotstage-agent")["spec"]["ingress"]
    ports = [port["port"] for port in rule["ports"]]
    assert ports == [endpoint["port"]] == [container("modern", "agent")["ports"][0]["name"]]


def test_the_monitor_takes_the_secrets_that_the_agent_has():
    mounted = {
        volume["name"]: volume["secret"]["secretName"]
        for volume in pod(one("modern", "DaemonSet", "hotstage-agent"))["volumes"]
        if "secret" in volume
    }
    (endpoint,) = one("podmonitor", "PodMonitor", "hotstage-agent")["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"]["name"] == mounted["token"]
    assert endpoint["tlsConfig"]["ca"]["secret"]["name"] == mounted["tls"]


def test_secrets_come_as_files_never_as_environment():
    entries = [entry for each in all_containers() for entry in each.get("env", ())]
    assert all("value" in entry for entry in entries)
    assert not any("envFrom" in each for each in all_containers())


def test_limits_are_those_of_the_units():
    names = {"agent": "hotstage-agent", "notify": "hotstage-notify", "explorer": "hotstage-explorer"}
    for each in all_containers():
        if each["name"] in names:
            assert each["resources"]["limits"]["memory"] == unit(names[each["name"]])["MemoryMax"] + "i"
    assert container("modern", "agent")["resources"]["limits"]["cpu"] == "1"
    assert unit("hotstage-agent")["CPUQuota"] == "100%"


def test_every_mount_has_its_volume():
    for work in workloads():
        volumes = {volume["name"] for volume in pod(work)["volumes"]}
        mounts = {
            mount["name"]
            for part in ("initContainers", "containers")
            for each in pod(work).get(part, ())
            for mount in each["volumeMounts"]
        }
        assert mounts == volumes
