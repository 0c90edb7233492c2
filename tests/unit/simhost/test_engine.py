# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys

import pytest
import urllib3

from hotstage.simhost.engine import EngineServer
from hotstage.simhost.engine_model import EngineModel
from hotstage.simhost.engine_page import Dialect


@pytest.fixture
def server():
    made = EngineServer(EngineModel(seed=2), Dialect.vllm)
    yield made
    made.close()


def test_the_page_follows_the_model(server):
    first = urllib3.request("GET", server.url, retries=False)
    server.advance(20.0)
    second = urllib3.request("GET", server.url, retries=False)
    assert first.status == second.status == 200
    assert "vllm:generation_tokens_total" in second.data.decode() and first.data != second.data
    assert urllib3.request("GET", server.url.replace("metrics", "health"), retries=False).status == 404


def test_a_restart_begins_anew(server):
    server.advance(20.0)
    server.restart(EngineModel(seed=3))
    assert b"vllm:generation_tokens_total" in server.page()
    assert b'finished_reason="stop",model_name="sim/vlm-7b"} 0.0' in server.page()


def test_the_command_says_where_it_serves_and_ends_with_its_input():
    command = [sys.executable, "-m", "hotstage.simhost.engine", "--dialect", "sglang", "--seed", "4"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        told = json.loads(process.stdout.readline())
        page = urllib3.request("GET", told["url"], retries=False, timeout=5.0).data.decode()
        assert told["dialect"] == "sglang" and "sglang:num_running_reqs" in page
        process.stdin.close()
        assert process.wait(10) == 0
