# SPDX-License-Identifier: Apache-2.0
"""A demo's addresses: free ones, or those that a scraper knows."""

from __future__ import annotations

from pathlib import Path

from hotstage.cli.demo.layout import free_ports, lay_out
from hotstage.cli.demo.run import elsewhere
from hotstage.config.settings import HttpConfig


def test_ports_that_are_given_are_taken_and_the_others_are_free(tmp_path):
    port = free_ports(1)[0]
    layout = lay_out(tmp_path, loader="auto", nvml_directory=tmp_path, agent_port=port)
    assert layout.config.http.listen == f"127.0.0.1:{port}"
    assert layout.config.explore.agent == f"http://127.0.0.1:{port}"
    assert layout.config.explore.listen not in {f"127.0.0.1:{port}", f"127.0.0.1:{layout.receiver_port}"}


def test_the_explorer_can_have_its_place_too(tmp_path):
    port = free_ports(1)[0]
    layout = lay_out(tmp_path, loader="auto", nvml_directory=tmp_path, explorer_port=port)
    assert layout.config.explore.listen == f"127.0.0.1:{port}"
    assert layout.config_file.read_text().count(str(port)) >= 1


def test_a_demo_says_how_to_ask_it_from_another_terminal():
    said = "\n".join(
        elsewhere(HttpConfig(listen="127.0.0.1:4711", socket="/tmp/d/agent.sock"), Path("/tmp/d/c.toml"))
    )
    assert "export HOTSTAGE_AGENT=http://127.0.0.1:4711 HOTSTAGE_SOCKET=/tmp/d/agent.sock" in said
    assert "hotstage breakers trip host --ttl 1m --socket /tmp/d/agent.sock" in said
    assert "hotstage --config /tmp/d/c.toml webhook test --all" in said
