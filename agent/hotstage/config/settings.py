# SPDX-License-Identifier: Apache-2.0
"""Every setting once: its name, type, default and meaning. Example file, checks and schema come from here.

A section is a frozen struct; a room is handed its own section, never the whole `Config`. Units are in the
names. This module does no I/O and never asks the host anything.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from hotstage.config.classes import ClassesConfig
from hotstage.config.conflict import ConflictConfig
from hotstage.config.deny import DenyEntry
from hotstage.config.engines import EnginesConfig
from hotstage.config.explore import ExploreConfig
from hotstage.config.governor import GovernorConfig
from hotstage.config.log import LogConfig
from hotstage.config.notify import NotifyConfig
from hotstage.config.section import (
    BaseUrl,
    Days,
    ListenAddress,
    PathText,
    PositiveBytes,
    PositiveFloat,
    PositiveInt,
    Ratio,
    Section,
    SocketPath,
    Text,
    Weight,
)
from hotstage.config.slo import SloConfig
from hotstage.config.snapshots import RecoveryConfig, SnapshotsConfig
from hotstage.config.stages import StagesConfig


class ProbesConfig(Section, frozen=True, kw_only=True):
    """What is attached, and how much the kernel may hold."""

    loader: Annotated[
        Literal["auto", "libbpf", "bcc"], Meta(description="compiler of the call counters; auto = libbpf")
    ] = "auto"
    rung: Annotated[
        Literal["auto", "S", "M", "P"],
        Meta(description="S uprobe.session, M uprobe.multi pair, P perf event; auto tries them in turn"),
    ] = "auto"
    fast_placement: Annotated[
        bool,
        Meta(
            description="step over proven first instructions to an emulated one; false probes at the symbol"
        ),
    ] = True
    tier: Annotated[
        Literal["T0", "T1", "T2"],
        Meta(
            description="calls that are probed: T0 allocations, waits, graphs, collectives; T1 launches and"
            " copies too; T2 events and queries too, which are frequent"
        ),
    ] = "T1"
    canary: Annotated[
        bool,
        Meta(
            description="before a libcuda is attached, load it once in a process without rights, probe it "
            "there alone and replay its cuGetProcAddress; false attaches by the bytes alone"
        ),
    ] = True
    nvtx_torch: Annotated[
        bool,
        Meta(
            description="NVTX ranges of PyTorch without the injection library; push and pop cost some 1.5 µs "
            "and read 64 bytes of the range's name"
        ),
    ] = False
    torch_memory: Annotated[
        bool,
        Meta(
            description="blocks of PyTorch's CUDA allocator, for exact fragmentation; one that is made and "
            "freed costs some 3 µs"
        ),
    ] = False
    torch_blocks: Annotated[
        PositiveInt,
        Meta(description="blocks of PyTorch's allocator followed; one process may hold a quarter"),
    ] = 131_072
    xid: Annotated[bool, Meta(description="watch the kernel log for NVIDIA XID lines")] = True
    driver: Annotated[
        bool,
        Meta(description="tracepoints of GPU drivers and of OOM kills, as far as the kernel has them"),
    ] = True
    gpu_ioctls: Annotated[
        bool,
        Meta(
            description="count ioctls of GPU devices by class; taxes every system call of the host by some "
            "40 ns"
        ),
    ] = False
    scheduler: Annotated[
        bool,
        Meta(
            description="waits for a CPU of threads in the GPU path; some 0.08 µs more for each context "
            "switch of the host, 0.14 µs for theirs"
        ),
    ] = True
    page_faults: Annotated[
        bool,
        Meta(description="page faults of threads in the GPU path by stage; every fault of the host pays"),
    ] = False
    kernel_gap: Annotated[
        int,
        Meta(
            ge=0,
            le=1024,
            description="launches are told by kernel from one in so many, at random gaps; 1 looks at each, "
            "0 at none; a look costs some 0.05 µs, which is measured at the start, too",
        ),
    ] = 16
    kernel_series: Annotated[
        int,
        Meta(
            ge=0,
            le=16,
            description="how many kernels have a series of their own in the metrics, those launched most of "
            "late; 0: none, and no rest",
        ),
    ] = 16
    stacks: Annotated[
        bool,
        Meta(
            description="user stacks of slow and failing calls, at most 100 a second by one thread; what one "
            "costs is measured at the start, 1.2 µs for the deepest on Linux 6.18"
        ),
    ] = True
    custom_directory: Annotated[
        PathText | None,
        Meta(description="programs of your own, *.bpf.c; root's, and writable by root alone"),
    ] = "/etc/hotstage/probes.d"
    proc_root: Annotated[PathText, Meta(description="where procfs is mounted")] = "/proc"
    call_keys: Annotated[PositiveInt, Meta(description="entries of the call counter map")] = 16_384
    histogram_slots: Annotated[PositiveInt, Meta(description="latency histograms, 1,936 bytes each")] = 4_096
    threads: Annotated[PositiveInt, Meta(description="threads followed")] = 16_384
    requests: Annotated[
        PositiveInt,
        Meta(description="requests in flight held in `pipeline_state`; one process may hold a quarter"),
    ] = 8_192
    events_ring_bytes: Annotated[
        PositiveBytes, Meta(description="ring of finished requests, slow calls and errors; a power of two")
    ] = 4 << 20
    slow_call_seconds: Annotated[
        PositiveFloat, Meta(description="a call at least this long becomes an event")
    ] = 1.0
    discovery_deadline_seconds: Annotated[
        PositiveFloat,
        Meta(description="a look into one process or file that takes longer is given up and reported"),
    ] = 2.0
    process_linger_seconds: Annotated[
        PositiveFloat,
        Meta(description="how long counters outlive their process, so that a last read sees them"),
    ] = 5.0
    deny: Annotated[list[DenyEntry], Meta(max_length=256, description="libraries that are never probed")] = (
        field(default_factory=list)
    )


class DevicesConfig(Section, frozen=True, kw_only=True):
    """The process that alone loads NVML."""

    enabled: Annotated[bool, Meta(description="sample GPUs through NVML")] = True
    library_directory: Annotated[
        PathText | None,
        Meta(description="where libnvidia-ml.so.1 is, if the linker does not find it by itself"),
    ] = None
    period_seconds: Annotated[
        PositiveFloat, Meta(description="utilisation, clocks, power; memory is ten times faster")
    ] = 1.0
    hang_after_seconds: Annotated[
        PositiveFloat,
        Meta(description="a silent devices process is abandoned and started again after this long"),
    ] = 10.0


class FrameConfig(Section, frozen=True, kw_only=True):
    """The one time grid."""

    latency_window_seconds: Annotated[
        PositiveFloat, Meta(description="quantiles are over the requests that ended within this time")
    ] = 60.0
    quantile_min_samples: Annotated[
        PositiveInt, Meta(description="below this many samples a quantile is unknown")
    ] = 20
    history_seconds: Annotated[
        PositiveFloat, Meta(description="look-back that rules and `/v1/frames` may use")
    ] = 900.0
    stale_after_seconds: Annotated[PositiveFloat, Meta(description="telemetry older than this is stale")] = (
        3.0
    )
    heat_weights: Annotated[
        dict[Text, Weight], Meta(description="endpoint → weight of its request rate in the heat; default 1")
    ] = field(default_factory=dict)
    heat_weight: Annotated[
        Literal["requests", "token_equivalents", "slo_penalty"],
        Meta(
            description="what else a request weighs in the heat: nothing, its endpoint's token equivalents"
            " a request, or 1 + its endpoint's SLO penalty in seconds"
        ),
    ] = "requests"
    max_endpoints: Annotated[PositiveInt, Meta(description="endpoints told apart; the rest is `other`")] = 100


class DetectConfig(Section, frozen=True, kw_only=True):
    """When something is wrong."""

    rules_files: Annotated[
        list[PathText], Meta(description="more rule files, after the built-in ones; globs are allowed")
    ] = field(default_factory=list)
    builtin_rules: Annotated[bool, Meta(description="use the rules that come with hotstage")] = True
    min_baseline_samples: Annotated[
        PositiveInt, Meta(description="ended stages needed before their latency is judged")
    ] = 20
    stage_latency_factor: Annotated[
        PositiveFloat,
        Meta(description="a stage this many times its usual duration per unit of work is suspicious"),
    ] = 2.5
    stage_latency_floor_seconds: Annotated[
        float, Meta(ge=0, le=1e9, description="and only if it takes this many seconds more than usual")
    ] = 0.005
    hang_seconds: Annotated[
        PositiveFloat,
        Meta(description="no progress for this long with requests in flight, against a known cadence"),
    ] = 5.0
    hang_without_cadence_seconds: Annotated[
        PositiveFloat, Meta(description="the same where no cadence is known yet")
    ] = 10.0
    xid_active_seconds: Annotated[
        PositiveFloat, Meta(description="how long one XID keeps its window open")
    ] = 5.0
    xid_until_reset: Annotated[
        list[PositiveInt],
        Meta(description="XIDs whose window stays until something shows the GPU back, or an operator does"),
    ] = field(default_factory=lambda: [48, 62, 64, 74, 79, 95, 110, 119, 120, 140])


class WindowsConfig(Section, frozen=True, kw_only=True):
    """How findings become anomaly windows."""

    close_after_seconds: Annotated[
        PositiveFloat, Meta(description="a window closes after this long without a finding")
    ] = 3.0
    max_open: Annotated[
        PositiveInt, Meta(description="open windows; further ones are counted, not opened")
    ] = 64


class BreakersConfig(Section, frozen=True, kw_only=True):
    """Admit or shed, per scope."""

    enforced: Annotated[
        bool, Meta(description="callers heed an open breaker; false is a dry run, in which they heed trips")
    ] = False
    min_severity: Annotated[
        Literal["info", "warning", "critical"], Meta(description="windows below this do not move a breaker")
    ] = "warning"
    scopes: Annotated[
        list[Literal["host", "gpu", "stage", "modality", "endpoint", "instance"]],
        Meta(description="kinds of entity that get a breaker"),
    ] = field(default_factory=lambda: ["stage", "instance", "gpu"])
    open_after_seconds: Annotated[
        float, Meta(ge=0, le=1e9, description="a window must be open this long first")
    ] = 0.0
    cool_down_seconds: Annotated[PositiveFloat, Meta(description="first time in open before half-open")] = (
        10.0
    )
    cool_down_max_seconds: Annotated[PositiveFloat, Meta(description="cap of the growing cool-down")] = 600.0
    close_for_seconds: Annotated[
        PositiveFloat, Meta(description="half-open closes after this long without a window, with traffic")
    ] = 5.0
    min_probe_samples: Annotated[
        PositiveInt, Meta(description="requests that must end well in half-open")
    ] = 5
    max_open_ratio: Annotated[
        Ratio, Meta(description="share of instances that may be enforced open at once")
    ] = 0.5
    max_breakers: Annotated[PositiveInt, Meta(description="breakers held; further scopes are counted")] = 256


class StoreConfig(Section, frozen=True, kw_only=True):
    """What is kept on disk."""

    directory: Annotated[PathText, Meta(description="state directory")] = "/var/lib/hotstage"
    retention_days: Annotated[Days, Meta(description="closed windows and events older than this go")] = 30.0
    max_bytes: Annotated[
        PositiveBytes, Meta(description="size of the database before the oldest rows go")
    ] = 512 << 20
    pending_max: Annotated[
        PositiveInt, Meta(description="changes kept in memory while the disk refuses them")
    ] = 10_000


class HttpConfig(Section, frozen=True, kw_only=True):
    """The agent's HTTP API."""

    listen: Annotated[
        ListenAddress, Meta(description="address:port of the API; loopback unless a token and TLS are set")
    ] = "127.0.0.1:9178"
    socket: Annotated[SocketPath, Meta(description="Unix socket for the notifier and for overrides")] = (
        "/run/hotstage/agent.sock"
    )
    socket_group: Annotated[Text | None, Meta(description="group that may use the socket")] = None
    token_file: Annotated[
        PathText | None, Meta(description="file with the bearer token that overrides over TCP need")
    ] = None
    tls_certificate_file: Annotated[
        PathText | None, Meta(description="PEM certificate chain; then the TCP address speaks TLS only")
    ] = None
    tls_key_file: Annotated[PathText | None, Meta(description="PEM key of that certificate")] = None
    allow_plaintext: Annotated[
        bool,
        Meta(description="open to other hosts without TLS, where something else encrypts; needs the token"),
    ] = False
    max_connections: Annotated[PositiveInt, Meta(description="connections served at once")] = 32
    timeout_seconds: Annotated[PositiveFloat, Meta(description="a peer slower than this is dropped")] = 10.0


class PageConfig(Section, frozen=True, kw_only=True):
    """The shared-memory page of breaker states."""

    path: Annotated[PathText, Meta(description="file that containers mount read-only")] = (
        "/run/hotstage/breakers"
    )
    stale_after_seconds: Annotated[
        PositiveFloat, Meta(description="readers call the page stale after this long")
    ] = 5.0
    stale_sheds: Annotated[
        bool, Meta(description="what an enforced breaker's callers do while it is stale; false admits")
    ] = False
    half_open_admit_ratio: Annotated[
        Ratio, Meta(description="share of requests that callers let through a half-open breaker")
    ] = 0.1


class OtlpConfig(Section, frozen=True, kw_only=True):
    """OpenTelemetry: metrics, spans of requests and stages, and window events to a collector, over HTTP."""

    endpoint: Annotated[
        BaseUrl | None,
        Meta(
            description="base URL of the collector, `/v1/traces` and so on are appended; "
            "absent = OTEL_EXPORTER_OTLP_ENDPOINT, and off without it"
        ),
    ] = None
    headers_file: Annotated[
        PathText | None,
        Meta(description="file with one `name=value` a line, sent with each export: the place for a token"),
    ] = None
    metrics: Annotated[bool, Meta(description="export what `/metrics` shows")] = True
    traces: Annotated[bool, Meta(description="export spans of finished requests and their stages")] = True
    events: Annotated[bool, Meta(description="export windows that open or close, as log events")] = True
    period_seconds: Annotated[PositiveFloat, Meta(description="time between exports of metrics")] = 15.0
    spans_per_second: Annotated[
        PositiveFloat, Meta(description="spans exported at most; the rest is dropped and counted")
    ] = 50.0
    baseline_ratio: Annotated[
        Ratio,
        Meta(
            description="share of the requests exported that neither failed nor met an anomaly window; "
            "those that did always are"
        ),
    ] = 0.05
    timeout_seconds: Annotated[
        PositiveFloat, Meta(description="an export that takes longer, retries included, is given up")
    ] = 10.0


class Config(Section, frozen=True, kw_only=True):
    """The whole configuration: one section per room."""

    probes: ProbesConfig = field(default_factory=ProbesConfig)
    governor: GovernorConfig = field(default_factory=GovernorConfig)
    devices: DevicesConfig = field(default_factory=DevicesConfig)
    engines: EnginesConfig = field(default_factory=EnginesConfig)
    stages: StagesConfig = field(default_factory=StagesConfig)
    frame: FrameConfig = field(default_factory=FrameConfig)
    classes: ClassesConfig = field(default_factory=ClassesConfig)
    detect: DetectConfig = field(default_factory=DetectConfig)
    conflict: ConflictConfig = field(default_factory=ConflictConfig)
    windows: WindowsConfig = field(default_factory=WindowsConfig)
    breakers: BreakersConfig = field(default_factory=BreakersConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    snapshots: SnapshotsConfig = field(default_factory=SnapshotsConfig)
    recovery: RecoveryConfig = field(default_factory=RecoveryConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    page: PageConfig = field(default_factory=PageConfig)
    notify: NotifyConfig = field(default_factory=NotifyConfig)
    slo: SloConfig = field(default_factory=SloConfig)
    otlp: OtlpConfig = field(default_factory=OtlpConfig)
    explore: ExploreConfig = field(default_factory=ExploreConfig)
    log: LogConfig = field(default_factory=LogConfig)
