# SPDX-License-Identifier: Apache-2.0
"""Who holds a port or BPF links, from descriptors; a stranger's secret options are not repeated."""

from __future__ import annotations

from hotstage.cli.doctor.holders import link_holders, port_holder

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def listening(port: int, inode: int) -> str:
    return f"   0: 0100007F:{port:04X} 00000000:0000 0A 0:0 00:0 0 0 0 {inode} 1\n"


def test_the_listener_is_named_with_the_beginning_of_its_command(host):
    host.write({"proc/net/tcp": HEAD + listening(9178, 77) + listening(80, 78)})
    host.write({"proc/41/comm": "python\n", "proc/41/cmdline": "python\0-m\0hotstage\0agent\0"})
    host.link("proc/41/fd/3", "socket:[77]").link("proc/42/fd/3", "socket:[78]")
    assert port_holder(host, 9178) == "41 python: python -m hotstage agent"


def test_a_connection_is_no_listener_and_a_hidden_one_is_unknown(host):
    text = HEAD + listening(9178, 77).replace(" 0A ", " 01 ") + listening(9179, 79)
    host.write({"proc/net/tcp6": text, "proc/41/comm": ""})
    assert port_holder(host, 9178) is None
    assert port_holder(host, 9179) is None


def test_values_of_options_are_not_shown(host):
    command = "server\0--token\0geheim\0--key=geheim\0--verbose\0-x\0"
    host.write({"proc/41/comm": "ser\x1bver\n", "proc/41/cmdline": command})
    host.link("proc/41/fd/9", "anon_inode:bpf_link").link("proc/42/fd/9", "anon_inode:bpf-prog")
    assert link_holders(host) == ["41 ser?ver: server --token … --key=… --verbose -x"]


def test_a_link_that_a_thread_holds_in_its_own_table_is_found(host):
    host.write({"proc/41/comm": "hotstage\n", "proc/41/cmdline": "hotstage\0agent\0"})
    host.write({"proc/41/task/41/comm": "hotstage\n", "proc/41/task/43/comm": "hotstage-link\n"})
    host.link("proc/41/fd/3", "socket:[1]").link("proc/41/task/43/fd/9", "anon_inode:bpf_link")
    assert link_holders(host) == ["41 hotstage: hotstage agent"]
