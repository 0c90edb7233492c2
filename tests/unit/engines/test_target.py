# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from hotstage.config.engines import EngineEndpoint, EnginesConfig
from hotstage.engines.target import read_targets
from hotstage.engines.triton import TRITON
from hotstage.errors import ConfigError


def target(url="http://127.0.0.1:8000", **changed):
    (made,) = read_targets([EngineEndpoint(name="e", url=url, **changed)])
    return made


def test_a_url_without_a_path_is_the_metrics_page_of_its_port():
    assert target().url == "http://127.0.0.1:8000/metrics"
    assert target("https://engine.example/").url == "https://engine.example:443/metrics"
    assert target("http://[::1]:30000/own/page").url == "http://[::1]:30000/own/page"


def test_an_engine_speaks_for_the_instance_of_its_name_unless_told():
    assert target().instance == "e"
    assert target(instance="i-0").instance == "i-0"


def test_a_kind_that_is_given_is_not_guessed():
    assert target(kind="triton").table is TRITON
    assert target().table is None


@pytest.mark.parametrize(
    "url",
    [
        "ftp://h/",
        "http://user:secret@h/",
        "http://h/?token=secret",
        "http://h /",
        "127.0.0.1:8000",
        "http:///x",
    ],
)
def test_a_url_with_a_secret_in_it_or_of_another_kind_is_refused_by_its_type(url):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"endpoints": [{"name": "e", "url": url}]}, EnginesConfig)


@pytest.mark.parametrize("url", ["http://h:99999", "http://h:x", "http://[::1"])
def test_a_port_that_is_none_is_refused(url):
    with pytest.raises(ConfigError) as caught:
        target(url)
    assert "engines.endpoints e" in caught.value.message and caught.value.remedy


def test_a_token_does_not_cross_the_network_in_the_clear():
    with pytest.raises(ConfigError, match="in the clear"):
        target("http://engine.example:8000", token_file="/t")
    for url in ("https://engine.example", "http://127.0.0.2:1", "http://localhost:1", "http://[::1]:1"):
        assert target(url, token_file="/t").token_file


@pytest.mark.parametrize("second", [{"name": "e"}, {"name": "f", "instance": "e"}])
def test_two_engines_cannot_speak_for_one_instance(second):
    first = EngineEndpoint(name="e", url="http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="two have the"):
        read_targets([first, EngineEndpoint(url="http://127.0.0.1:2", **second)])


def test_a_token_is_read_anew_each_time(tmp_path):
    file = tmp_path / "token"
    file.write_text("one\n")
    made = target(token_file=str(file))
    assert made.token() == "one"
    file.write_text("two")
    assert made.token() == "two"
    assert target().token() is None
