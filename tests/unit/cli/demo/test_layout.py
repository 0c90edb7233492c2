# SPDX-License-Identifier: Apache-2.0
"""A demo's addresses: free ones, or those that a scraper knows."""

from __future__ import annotations

from hotstage.cli.demo.layout import free_ports, lay_out


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
