# SPDX-License-Identifier: Apache-2.0
"""The real agent beside fake engines in processes of their own: what they say arrives, what dies is told, the
rest goes on.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys

import pytest
import urllib3

pytestmark = pytest.mark.kernel


class FakeEngine:
    """`python -m hotstage.simhost.engine` until its input closes."""

    def __init__(self, dialect, seed):
        command = [sys.executable, "-m", "hotstage.simhost.engine", "--dialect", dialect, "--seed", str(seed)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = json.loads(self.process.stdout.readline())["url"]

    def end(self):
        self.process.kill()
        self.process.wait(10)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def engines():
    made = {
        "vllm-0": FakeEngine("vllm", 3),
        "sglang-0": FakeEngine("sglang", 4),
        "triton-0": FakeEngine("triton", 5),
    }
    yield made
    for engine in made.values():
        engine.end()


@pytest.fixture
def agent(tmp_path, engines, until):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    endpoints = "".join(
        f'[[engines.endpoints]]\nname = "{name}"\nurl = "{engine.url}"\n' for name, engine in engines.items()
    )
    config = tmp_path / "config.toml"
    config.write_text(
        f'[store]\ndirectory = "{tmp_path}/state"\n'
        f'[http]\nlisten = "127.0.0.1:{port}"\nsocket = "{tmp_path}/agent.sock"\n'
        f'[page]\npath = "{tmp_path}/breakers"\n'
        "[devices]\nenabled = false\n"
        f"[engines]\nperiod_seconds = 0.5\ntimeout_seconds = 0.5\nmin_samples = 3\n{endpoints}"
    )
    command = [sys.executable, "-m", "hotstage", "--config", str(config), "agent"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def get(path):
        """The body, or None while nobody answers well."""
        try:
            answer = urllib3.request("GET", f"http://127.0.0.1:{port}{path}", retries=False, timeout=5.0)
        except urllib3.exceptions.HTTPError:
            assert process.poll() is None, process.stderr.read()
            return None
        return answer.data.decode() if answer.status == 200 else None

    until(lambda: get("/readyz"), "the agent's readiness")
    yield get
    process.send_signal(signal.SIGTERM)
    try:
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.stderr.close()


def in_frames(get):
    """Instance → its engine columns in the last frame."""
    frames = json.loads(get("/v1/frames?seconds=3"))["frames"]
    return {
        entity["instance"]: {
            name: value for name, value in entity["values"].items() if name.startswith("engine_")
        }
        for entity in (frames[-1]["entities"] if frames else ())
        if entity["kind"] == "instance"
    }


def up(get):
    lines = (get("/metrics") or "").splitlines()
    return {
        line.split('"')[1]: line.split()[1] for line in lines if 'collector_up{collector="engine:' in line
    }


def test_engines_are_read_told_when_they_die_and_disturb_neither_each_other_nor_the_agent(
    agent, engines, until
):
    def has_latencies():
        told = in_frames(agent)
        wanted = {"engine_ttft_p95_seconds", "engine_request_rate"}
        return all(wanted <= set(told.get(name, ())) for name in engines)

    until(has_latencies, "latencies of three engines", 40.0)
    told = in_frames(agent)
    assert "engine_kv_use_ratio" in told["vllm-0"] and "engine_itl_p95_seconds" in told["sglang-0"]
    assert "engine_running" not in told["triton-0"], "Triton does not tell it"
    metrics = agent("/metrics")
    for runtime in ("vllm", "sglang", "triton"):
        labels = f'instance_id="{runtime}-0",model_name="sim/vlm-7b",runtime="{runtime}"'
        assert f"hotstage_engine_queue_requests{{{labels}}}" in metrics
    assert up(agent) == {"engine:vllm-0": "1.0", "engine:sglang-0": "1.0", "engine:triton-0": "1.0"}

    engines["vllm-0"].process.kill()
    until(lambda: up(agent)["engine:vllm-0"] == "0.0", "the dead engine's absence")
    assert (up(agent)["engine:sglang-0"], up(agent)["engine:triton-0"]) == ("1.0", "1.0")
    told = in_frames(agent)
    assert set(told["vllm-0"]) == {"engine_sample_age_seconds"}
    assert "engine_queue" in told["sglang-0"]
    health = json.loads(agent("/healthz"))
    (dead,) = [each for each in health["checks"]["engines"] if each["name"] == "vllm-0"]
    assert (health["status"], dead["fresh"], dead["reason"]) == ("ok", False, "Connection refused")
