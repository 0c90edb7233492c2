# SPDX-License-Identifier: Apache-2.0
"""The configuration as doctor sees it: validity, secrets' modes, destinations and collectors."""

from __future__ import annotations

import socket

import pytest

from hotstage.cli.doctor.configuration import (
    OTLP_VARIABLE,
    check_collectors,
    check_configuration,
    check_destinations,
    check_permissions,
    secret_files,
)
from hotstage.cli.doctor.finding import Status
from hotstage.config.explore import ExploreConfig
from hotstage.config.notify import Destination, NotifyConfig
from hotstage.config.settings import Config, HttpConfig, OtlpConfig
from hotstage.errors import ConfigError

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_a_broken_configuration_is_in_the_way_and_told_with_its_place(host):
    host.config_error = ConfigError(
        "config.toml:3: [store] has no key `dir`", remedy="did you mean `directory`?"
    )
    (finding,) = check_configuration(host)
    assert (finding.status, finding.remedy) == (Status.FAIL, "did you mean `directory`?")
    assert "the other checks take the defaults" in finding.detail


def test_no_file_means_the_defaults(host, tmp_path):
    host.config_file = tmp_path / "none.toml"
    (finding,) = check_configuration(host)
    assert finding.detail == f"no {tmp_path}/none.toml: the defaults are in force"


@pytest.mark.parametrize(
    ("mode", "status", "said"),
    [
        (0o640, None, ""),
        (0o644, Status.WARN, "every user may read it"),
        (0o660, Status.WARN, "others may change it"),
    ],
)
def test_a_secret_that_all_may_read_is_told(host, tmp_path, by_name, mode, status, said):
    file = tmp_path / "token"
    file.write_text("t" * 32)
    file.chmod(mode)
    host.config = Config(http=HttpConfig(token_file=str(file)))
    host.config_file = tmp_path / "config.toml"
    found = by_name(check_permissions(host))
    assert ("http.token_file" in found) is (status is not None)
    if status is not None:
        finding = found["http.token_file"]
        assert (finding.status, finding.remedy) == (status, f"chmod 0640 {file}")
        assert said in finding.detail
    assert found["secrets"].detail == "1 file with secrets looked at"


def test_a_missing_secret_and_a_configuration_that_anybody_may_write_are_told(host, tmp_path, by_name):
    config_file = tmp_path / "config.toml"
    config_file.write_text("")
    config_file.chmod(0o666)
    host.config = Config(otlp=OtlpConfig(headers_file=str(tmp_path / "gone")))
    host.config_file = config_file
    found = by_name(check_permissions(host))
    assert found["otlp.headers_file"].detail.endswith("No such file or directory")
    assert found["configuration file"].remedy == f"chmod o-w {config_file}"


def test_a_relative_secret_is_a_credential(host, tmp_path, by_name):
    (tmp_path / "token").write_text("t" * 32)
    host.environment = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    host.config, host.config_file = Config(http=HttpConfig(token_file="token")), tmp_path / "x.toml"
    assert by_name(check_permissions(host))["secrets"].data == {"files": 1}


def test_every_key_that_names_a_file_with_a_secret_is_looked_at():
    sections = {name: getattr(Config(), name) for name in Config.__struct_fields__}
    files = {
        f"{name}.{key}"
        for name, section in sections.items()
        for key in type(section).__struct_fields__
        if key.endswith(("token_file", "key_file", "headers_file", "secret_file"))
    }
    every = Config(
        http=HttpConfig(token_file="a", tls_key_file="b"),
        otlp=OtlpConfig(headers_file="c"),
        explore=ExploreConfig(prometheus_token_file="d"),
    )
    assert {key for key, _ in secret_files(every)} == files


def test_every_file_of_a_destination_is_looked_at():
    files = {key for key in Destination.__struct_fields__ if key.endswith("_file")}
    destination = Destination(name="a", url="https://example.com", **dict.fromkeys(files - {"url_file"}, "x"))
    by_file = Destination(name="b", url_file="x")
    looked = secret_files(Config(notify=NotifyConfig(destinations=[destination, by_file])))
    assert {key.rpartition(".")[2] for key, _ in looked} == files


def destinations(host, *urls: str, **changed):
    host.environment = {"KEY": SECRET}
    host.config = Config(
        notify=NotifyConfig(
            destinations=[
                Destination(name=f"to-{position}", url=url, secret_env="KEY", **changed)
                for position, url in enumerate(urls)
            ]
        )
    )
    return host


def test_destinations_are_resolved_and_nothing_is_sent(host, by_name):
    with socket.socket() as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.listen()
        receiver.settimeout(0)
        url = f"http://localhost:{receiver.getsockname()[1]}/hook?key=hidden"
        found = by_name(check_destinations(destinations(host, url)))
        with pytest.raises(BlockingIOError):
            receiver.accept()
    assert found["webhook to-0"].status is Status.OK
    assert "hidden" not in found["webhook to-0"].detail + str(found["webhook to-0"].data)


def test_metadata_and_names_without_an_address_are_refused(host, by_name):
    found = by_name(
        check_destinations(destinations(host, "https://169.254.169.254/x", "https://nowhere.invalid/x"))
    )
    assert {finding.status for finding in found.values()} == {Status.WARN}
    assert "link-local or metadata" in found["webhook to-0"].detail
    assert "cannot be resolved" in found["webhook to-1"].detail


def test_urls_that_are_keys_belong_into_a_closed_file(host, tmp_path, by_name):
    host.config_file = tmp_path / "config.toml"
    host.config_file.write_text("")
    host.config_file.chmod(0o644)
    destinations(host, "https://hooks.example.com/services/T0/B0/key", format="slack")
    remedy = by_name(check_permissions(host))["configuration file"].remedy
    assert remedy == f"chmod 0640 {host.config_file}, or url_file"
    host.config_file.chmod(0o640)
    assert "configuration file" not in by_name(check_permissions(host))


def test_no_destination_is_no_lack(host):
    (finding,) = check_destinations(host)
    assert finding.status is Status.ABSENT


def test_collectors_are_knocked_at_by_configuration_and_environment(host, by_name):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        host.environment = {OTLP_VARIABLE: f"http://127.0.0.1:{port}"}
        host.config = Config(explore=ExploreConfig(prometheus=f"http://127.0.0.1:{port}/x"))
        found = by_name(check_collectors(host))
        assert (found["OTLP"].status, found["Prometheus"].status) == (Status.OK, Status.OK)
    found = by_name(check_collectors(host))
    assert found["OTLP"].status is Status.WARN
    assert "not reachable for metrics and spans: Connection refused" in found["OTLP"].detail


def test_a_collector_that_is_no_url_or_not_configured_is_told(host, by_name):
    host.config = Config(otlp=OtlpConfig(endpoint="collector:4318"))
    found = by_name(check_collectors(host))
    assert found["OTLP"].status is Status.WARN
    assert found["Prometheus"].status is Status.ABSENT


@pytest.mark.parametrize(
    "endpoint", ["http://[::1", "http://h:99999", "http://h:x", "http://\x00", f"http://{'a' * 70}"]
)
def test_a_collector_that_python_cannot_read_is_told(host, by_name, endpoint):
    host.environment = {OTLP_VARIABLE: endpoint}
    assert by_name(check_collectors(host))["OTLP"].status is Status.WARN
