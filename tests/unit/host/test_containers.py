# SPDX-License-Identifier: Apache-2.0
"""Cgroup paths as engines write them, and those of hosts and strangers."""

from __future__ import annotations

import pytest

from hotstage.host.containers import container_of

ID, POD = "4f3a0c9d1b2e" + "0" * 52, "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
SLICE = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice"


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        ("0::/", None),
        ("0::/user.slice/user-1000.slice/session-3.scope", None),
        ("0::/system.slice/hotstage-agent.service", None),
        (f"0::/system.slice/docker-{ID}.scope", "4f3a0c9d1b2e"),
        (f"12:memory:/docker/{ID}\n0::/", "4f3a0c9d1b2e"),
        (f"0::/machine.slice/libpod-{ID}.scope/container", "4f3a0c9d1b2e"),
        (f"0::/{SLICE}/cri-containerd-{ID}.scope", f"4f3a0c9d1b2e in pod {POD}"),
        (f"0::/{SLICE}/crio-{ID}.scope", f"4f3a0c9d1b2e in pod {POD}"),
        (f"4:memory:/kubepods/besteffort/pod{POD}/{ID}", f"4f3a0c9d1b2e in pod {POD}"),
        (f"0::/docker/{'e' * 64}/docker/{ID}", "4f3a0c9d1b2e"),
        ("0::/lxc.payload.web-1/init.scope", "lxc web-1"),
        ("2:memory:/lxc/web-1", "lxc web-1"),
        (f"0::/{'g' * 64}", None),
        ("", None),
    ],
)
def test_the_engine_is_told_by_its_path(cgroup, container):
    assert container_of(cgroup) == container


def test_names_of_strangers_do_not_come_through():
    assert container_of("0::/lxc/\x1b[2J") is None
    assert container_of("0::/docker-\x1b" + "a" * 63 + ".scope") is None
