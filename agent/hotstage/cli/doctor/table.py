# SPDX-License-Identifier: Apache-2.0
"""Every check, in the order in which one would ask: group, name, what it looks at."""

from __future__ import annotations

from hotstage.cli.doctor.compilers import check_bcc, check_clang, check_headers
from hotstage.cli.doctor.configuration import (
    check_collectors,
    check_configuration,
    check_destinations,
    check_permissions,
)
from hotstage.cli.doctor.engines import check_engines
from hotstage.cli.doctor.finding import Area
from hotstage.cli.doctor.gpu import check_binding, check_driver, check_nvml
from hotstage.cli.doctor.kernel import (
    check_bpf,
    check_btf,
    check_clock,
    check_lockdown,
    check_options,
    check_pressure,
    check_settings,
    check_version,
)
from hotstage.cli.doctor.libraries import check_libraries, check_marks
from hotstage.cli.doctor.namespaces import check_cgroups, check_memory, check_process_ids, check_sandbox
from hotstage.cli.doctor.peers import check_agent, check_units
from hotstage.cli.doctor.places import check_directories, check_ports
from hotstage.cli.doctor.privileges import check_capabilities, check_features
from hotstage.cli.doctor.run import Check
from hotstage.cli.doctor.rungs import check_placement, check_rungs, check_sideband
from hotstage.cli.doctor.tracepoints import check_tracepoints

CHECKS: tuple[Check, ...] = (
    Check(Area.KERNEL, "version", "uname", check_version),
    Check(Area.KERNEL, "BTF", "/sys/kernel/btf/vmlinux", check_btf),
    Check(Area.KERNEL, "pressure", "/proc/pressure", check_pressure),
    Check(Area.KERNEL, "configuration", "/proc/config.gz, /boot/config-*", check_options),
    Check(Area.KERNEL, "bpf(2)", "a program of two instructions", check_bpf),
    Check(Area.KERNEL, "lockdown", "/sys/kernel/security/lockdown", check_lockdown),
    Check(Area.KERNEL, "settings", "/proc/sys/kernel", check_settings),
    Check(Area.KERNEL, "memory", "the maps, the cgroup's limit, RLIMIT_MEMLOCK", check_memory, is_dear=True),
    Check(Area.KERNEL, "cgroup v2", "/sys/fs/cgroup", check_cgroups),
    Check(Area.KERNEL, "process ids", "/proc, its mount options and namespace", check_process_ids),
    Check(Area.KERNEL, "sandbox", "/proc/self/{uid_map,status,attr/current}", check_sandbox),
    Check(Area.KERNEL, "clock source", "/sys/devices/system/clocksource", check_clock),
    Check(
        Area.PRIVILEGES,
        "capabilities",
        "/proc/self/status, and what it allows, tried",
        check_capabilities,
        is_dear=True,
    ),
    Check(Area.PRIVILEGES, "features", "each thing that the agent does, tried", check_features, is_dear=True),
    Check(Area.PROBES, "rungs", "libbpf.so.1, programs linked to a scratch file", check_rungs, is_dear=True),
    Check(Area.PROBES, "new libraries", "perf_event_open(2)", check_sideband, is_dear=True),
    Check(
        Area.PROBES, "cheap placement", "the configuration and this machine's architecture", check_placement
    ),
    Check(Area.COMPILERS, "bcc", "Python's search path and the distribution's", check_bcc, is_dear=True),
    Check(Area.COMPILERS, "kernel headers", "/lib/modules, /sys/kernel/kheaders.tar.xz", check_headers),
    Check(Area.COMPILERS, "clang", "PATH, in a source checkout", check_clang),
    Check(
        Area.TRACEPOINTS,
        "tracepoints",
        "tracefs, and a program attached for a moment",
        check_tracepoints,
        is_dear=True,
    ),
    Check(Area.LIBRARIES, "libraries", "/proc/PID/{maps,root,mem,cgroup}", check_libraries, is_dear=True),
    Check(Area.LIBRARIES, "marks", "installed packages, /proc/PID/maps", check_marks, is_dear=True),
    Check(Area.GPU, "driver", "/proc/driver/nvidia, /sys/class/drm, /dev", check_driver),
    Check(Area.GPU, "nvidia-ml-py", "installed packages", check_binding),
    Check(Area.GPU, "NVML", "libnvidia-ml.so.1 in a process of its own", check_nvml, is_dear=True),
    Check(Area.CONFIGURATION, "configuration", "config.toml, conf.d, HOTSTAGE_…", check_configuration),
    Check(Area.CONFIGURATION, "secrets", "modes of the files that hold secrets", check_permissions),
    Check(Area.CONFIGURATION, "webhooks", "notify.destinations, the resolver", check_destinations),
    Check(
        Area.CONFIGURATION, "collectors", "OTLP and Prometheus addresses, by a connection", check_collectors
    ),
    Check(Area.CONFIGURATION, "engines", "each engine's /metrics, once", check_engines),
    Check(Area.PLACES, "ports", "bind(2), /proc/net/tcp", check_ports),
    Check(Area.PLACES, "directories", "a file made and removed, /proc/self/mountinfo", check_directories),
    Check(Area.SERVICE, "agent", "its socket or address", check_agent),
    Check(Area.SERVICE, "systemd", "systemctl show", check_units, is_dear=True),
)
