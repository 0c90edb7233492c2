# SPDX-License-Identifier: Apache-2.0
"""Engines looked at by hand and by the threads: fakes in simulated time, and others that misbehave."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from support.wire import listening, send

from hotstage.clock import SystemClock
from hotstage.config.engines import EngineEndpoint, EnginesConfig
from hotstage.engines.engines import Engines
from hotstage.engines.scraper import EngineScraper
from hotstage.engines.table import Runtime
from hotstage.engines.target import read_targets
from hotstage.simhost.engine import EngineServer
from hotstage.simhost.engine_model import EngineModel
from hotstage.simhost.engine_page import Dialect


@pytest.fixture
def fake():
    """`fake(dialect, seed)` → EngineServer, closed at the end."""
    made = []

    def build(dialect=Dialect.vllm, seed=3):
        made.append(EngineServer(EngineModel(seed), dialect))
        return made[-1]

    yield build
    for server in made:
        server.close()


@pytest.fixture
def wire():
    with listening() as made:
        yield made


def scraper(url, clock, **changed):
    endpoint = EngineEndpoint(name="e", url=url, **changed)
    config = EnginesConfig(endpoints=[endpoint], timeout_seconds=0.5)
    (target,) = read_targets(config.endpoints)
    return EngineScraper(target, config, clock)


def until(condition, what):
    end = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < end, f"waited 10 s for {what}"
        threading.Event().wait(0.02)


def test_before_the_first_look_nothing_is_known(fake, clock):
    sample = scraper(fake().url, clock).sample
    assert (sample.runtime, sample.at_ns, sample.models) == (None, None, ())
    assert not sample.is_fresh(clock.monotonic_ns()) and sample.reason == "not looked at yet"


@pytest.mark.parametrize("dialect", Dialect)
def test_an_engine_is_told_by_its_page(fake, clock, dialect):
    server = fake(dialect)
    server.advance(5.0)
    looking = scraper(server.url, clock)
    looking.look()
    sample = looking.sample
    assert sample.runtime is Runtime(dialect.value.split("-")[0])
    assert (sample.reason, sample.at_ns, sample.problems) == ("", clock.now_ns, ())
    assert [each.model for each in sample.models] == ["sim/vlm-7b"]


def test_an_engine_that_dies_keeps_its_last_numbers_until_they_are_too_old(fake, clock, caplog):
    server = fake()
    server.advance(5.0)
    looking = scraper(server.url, clock)
    looking.look()
    known = looking.sample.total
    server.close = lambda: None
    EngineServer.close(server)
    caplog.set_level(logging.INFO)
    for _ in range(3):
        clock.advance(2.0)
        looking.look()
    sample = looking.sample
    assert sample.total is known and sample.reason == "Connection refused"
    assert sample.failures == {"unreachable": 3}
    assert sample.is_fresh(clock.now_ns), "6 s old, three periods and a timeout are 6.5 s"
    assert not sample.is_fresh(clock.advance(2.0)) and sample.age_seconds(clock.now_ns) == 8.0
    assert [record.message for record in caplog.records] == ["engine e: Connection refused"], "told once"


def test_a_page_of_something_else_is_said(wire, clock):
    wire.default = send(b"# TYPE go_goroutines gauge\ngo_goroutines 12\n")
    looking = scraper(wire.address, clock)
    looking.look()
    assert looking.sample.reason == "the page has no name of vLLM, SGLang or Triton"
    looking = scraper(wire.address, clock, kind="sglang")
    looking.look()
    assert looking.sample.reason == "the page has no number of sglang that can be used"
    assert looking.sample.failures == {"page": 1}


def test_what_cannot_be_true_is_a_problem_and_not_a_number(wire, clock):
    wire.default = send(
        b'vllm:kv_cache_usage_perc{model_name="m"} 87\nvllm:num_requests_running{model_name="m"} 2\n'
    )
    looking = scraper(wire.address, clock)
    looking.look()
    sample = looking.sample
    assert sample.total.running == 2.0 and sample.total.kv_use_ratio != sample.total.kv_use_ratio
    assert sample.problems == ("vllm:kv_cache_usage_perc is 87, not 0 to 1",)


def test_a_restart_is_an_epoch(fake, clock):
    server = fake()
    server.advance(60.0)
    looking = scraper(server.url, clock)
    looking.look()
    clock.advance(2.0)
    server.restart(EngineModel(5))
    server.advance(2.0)
    looking.look()
    assert looking.sample.epoch == 1 and looking.sample.total.phases == {}


def test_another_engine_at_the_same_port_is_seen(fake, clock):
    server = fake(Dialect.vllm)
    server.advance(5.0)
    looking = scraper(server.url, clock)
    looking.look()
    server.dialect = Dialect.sglang
    looking.look()
    assert (looking.sample.runtime, looking.sample.epoch) == (Runtime.sglang, 1)


def test_a_dead_a_silent_an_endless_and_a_lying_engine_disturb_no_other(fake):
    well, gone = fake(), fake()
    well.advance(30.0)
    EngineServer.close(gone)
    gone.close = lambda: None
    with listening() as silent, listening() as endless, listening() as lying:
        silent.default = lambda connection, path: threading.Event().wait(10.0)
        endless.default = send(b"x" * 3_000_000)
        lying.default = send(b'vllm:num_requests_running{model_name="m"} -5\n' * 1000)
        urls = {
            "gone": gone.url, "silent": silent.address, "endless": endless.address,
            "lying": lying.address, "well": well.url,
        }  # fmt: skip
        config = EnginesConfig(
            endpoints=[EngineEndpoint(name=name, url=url) for name, url in urls.items()],
            period_seconds=0.1, timeout_seconds=0.4, max_bytes=1_000_000,
        )  # fmt: skip
        clock = SystemClock()
        engines = Engines(config, clock)
        engines.start()
        try:
            until(lambda: all(each.failures for each in engines.latest()[:4]), "four failures")
            until(lambda: engines.latest()[4].total.output_tokens_total > 0, "the one that is well")
            samples = {each.name: each for each in engines.latest()}
        finally:
            began = time.monotonic()
            engines.close()
            assert time.monotonic() - began < 3.0
        assert {name: dict(each.failures) != {} for name, each in samples.items()} == {
            "gone": True, "silent": True, "endless": True, "lying": True, "well": False,
        }  # fmt: skip
        assert set(samples["gone"].failures) == {"unreachable"}
        assert set(samples["silent"].failures) == {"timeout"}
        assert set(samples["endless"].failures) == {"size"}
        assert set(samples["lying"].failures) == {"page"}
        assert samples["well"].is_fresh(clock.monotonic_ns())


def test_without_engines_there_is_no_thread():
    before = threading.active_count()
    engines = Engines(EnginesConfig(), SystemClock())
    engines.start()
    assert engines.latest() == () and threading.active_count() == before
    engines.close()
