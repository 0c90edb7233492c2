# SPDX-License-Identifier: Apache-2.0
"""deploy/container/compose.yaml without an engine: its schema, mounts, addresses, its programs' flags.

`schemas/compose-spec.json` is the Compose Specification's own (Apache-2.0, as in Docker Compose 2.40).
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from support.dashboards import ROOT

from hotstage.cli.demo import demo
from hotstage.config.load import DEFAULT_FILE, load
from hotstage.notify import receiver

HOME = ROOT / "deploy/container"
COMPOSE: dict[str, Any] = yaml.safe_load((HOME / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SCHEMA = jsonschema.Draft7Validator(
    json.loads((ROOT / "tests/contracts/schemas/compose-spec.json").read_text(encoding="utf-8"))
)
PROGRAMS = {
    "prometheus": "prometheus",
    "victoriametrics": "victoria-metrics",
    "alertmanager": "prometheus-alertmanager",
}
"""Service → the program of its image, as Debian calls it."""

every_service = pytest.mark.parametrize("name", sorted(SERVICES))


def volumes(name: str) -> list[str]:
    """What a service mounts where no variable is set."""
    return [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", each) for each in SERVICES[name].get("volumes", [])]


def mounts(name: str) -> dict[str, str]:
    """Place in the container → what is mounted there; options left out."""
    return {each.split(":")[1]: each.split(":")[0] for each in volumes(name)}


@cache
def help_of(program: str) -> str:
    done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr


def test_it_is_a_compose_file():
    SCHEMA.validate(COMPOSE)


def test_the_schema_would_see_a_mistyped_key():
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate({"services": {"x": {"image": "y", "helthcheck": {}}}})


@every_service
def test_images_of_others_are_pinned_by_their_exact_version(name):
    image = SERVICES[name]["image"]
    assert image == "hotstage" or re.fullmatch(r"docker\.io/[a-z/-]+:v?\d+\.\d+\.\d+", image)


def test_grafana_is_of_the_release_that_the_dashboards_are_made_for():
    sdk = re.search(r"grafana-foundation-sdk==\d+!(\d+\.\d+)", (ROOT / "pyproject.toml").read_text())[1]
    assert SERVICES["grafana"]["image"].rpartition(":")[2].startswith(sdk + ".")


@every_service
def test_a_service_says_whether_it_is_well(name):
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"


@every_service
def test_what_is_mounted_from_the_repository_exists_and_is_read_only(name):
    for mount in volumes(name):
        source, _, options = mount.partition(":")
        if source.startswith("."):
            assert (HOME / source).resolve().exists(), mount
            assert options.endswith(":ro"), mount
        elif not source.startswith("/"):
            assert source in COMPOSE["volumes"], mount


@every_service
def test_nothing_listens_beyond_this_host(name):
    """All share the host's network, so every address that a program is given must be loopback."""
    service = SERVICES[name]
    assert service["network_mode"] == "host" and "ports" not in service
    words = " ".join(service["command"]) if isinstance(service.get("command"), list) else ""
    for flag in re.findall(r"-{1,2}(?:web\.listen-address|httpListenAddr)=(\S+)", words):
        assert flag.startswith("127.0.0.1:")
    if name in PROGRAMS:
        assert "127.0.0.1:" in words
    if name == "grafana":
        assert service["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"


@every_service
def test_a_service_is_asked_for_its_health_where_it_listens(name):
    asked = re.search(r"http://127\.0\.0\.1:(\d+)", " ".join(SERVICES[name]["healthcheck"]["test"]))[1]
    said = json.dumps([SERVICES[name].get("command"), SERVICES[name].get("environment")])
    assert asked in said


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_program_knows_the_flags_that_it_is_given(name):
    for word in SERVICES[name]["command"]:
        flag = word.lstrip("-").partition("=")[0]
        assert re.search(rf"^\s*-{{1,2}}{re.escape(flag)}\b", help_of(PROGRAMS[name]), re.MULTILINE), word


def test_victoria_metrics_accepts_its_scrape_configuration():
    configuration = ROOT / "deploy/prometheus/victoriametrics.yml"
    command = ["victoria-metrics", "-dryRun", f"-promscrape.config={configuration}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr


def test_prometheus_and_victoria_metrics_scrape_the_same():
    ours, theirs = (
        yaml.safe_load((ROOT / "deploy/prometheus" / name).read_text(encoding="utf-8"))["scrape_configs"]
        for name in ("prometheus.yml", "victoriametrics.yml")
    )
    assert [job["static_configs"] for job in ours] == [job["static_configs"] for job in theirs]
    assert [job["job_name"] for job in ours] == ["hotstage"]


def test_prometheus_finds_its_rules_where_they_are_mounted():
    configuration = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))
    inside = {str(Path("/etc/prometheus") / Path(rule).parent) for rule in configuration["rule_files"]}
    assert inside == {"/etc/prometheus/rules"} <= set(mounts("prometheus"))


def test_grafana_finds_the_dashboards_where_they_are_mounted():
    provider = yaml.safe_load((ROOT / "grafana/provisioning/dashboards/hotstage.yaml").read_text())
    path = provider["providers"][0]["options"]["path"]
    assert mounts("grafana")[path] == "../../grafana/dashboards"
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{path}/overview.json"


def test_grafana_reads_the_engines_where_they_listen():
    sources = yaml.safe_load((ROOT / "grafana/provisioning/datasources/hotstage.yaml").read_text())
    for source, service in zip(sources["datasources"], ("prometheus", "victoriametrics"), strict=True):
        assert source["url"].removeprefix("http://") in " ".join(SERVICES[service]["command"])


def test_up_has_settings_where_it_looks_for_them():
    file = HOME / mounts("hotstage")[str(DEFAULT_FILE)]
    config = load(file, {})
    assert config.http.listen == "127.0.0.1:9178", "what Prometheus scrapes"
    written = (HOME / "compose.yaml").read_text(encoding="utf-8")
    assert f"${{HOTSTAGE_CONFIG:-{mounts('hotstage')[str(DEFAULT_FILE)]}}}:{DEFAULT_FILE}:ro" in written


def test_the_demo_knows_its_options_and_listens_where_it_is_scraped():
    default = re.fullmatch(r"\$\{HOTSTAGE_COMMAND:-(.+)\}", SERVICES["hotstage"]["command"])[1]
    verb, *arguments = shlex.split(default)
    assert verb == "demo"
    with demo.make_context("demo", arguments) as context:
        assert (context.params["agent_port"], context.params["explorer_port"]) == (9178, 9179)


def test_the_receiver_listens_where_alertmanager_calls_and_reads_the_same_token():
    sample = (ROOT / "deploy/prometheus/alertmanager.yml").read_text(encoding="utf-8")
    command = SERVICES["receiver"]["command"]
    assert set(re.findall(r"http://127\.0\.0\.1:(\d+)/alerts", sample)) == {
        command[command.index("--port") + 1]
    }
    assert SERVICES["receiver"]["entrypoint"][-1] == receiver.__name__
    assert command[-2:] == ["--bearer-file", "/run/secrets/receiver-token"]
    (secret,) = SERVICES["alertmanager"]["secrets"]
    assert f"credentials_file: {secret['target']}" in sample
    assert {secret["source"], *SERVICES["receiver"]["secrets"]} == set(COMPOSE["secrets"])


def test_no_secret_is_written_down():
    text = (HOME / "compose.yaml").read_text(encoding="utf-8")
    text = text.replace("HOTSTAGE_RECEIVER_TOKEN", "")
    assert not re.search(r"(?i)(password|token|secret)[A-Z_]*: *[^\s$&#{\[]", text)
    assert COMPOSE["secrets"] == {"receiver-token": {"environment": "HOTSTAGE_RECEIVER_TOKEN"}}
