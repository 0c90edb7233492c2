# SPDX-License-Identifier: Apache-2.0
"""Checks of the configured inference engines: each is asked for its page once, as the agent would.

A token goes where the configuration sends it and nowhere else; it is never shown.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from hotstage.cli.doctor.finding import Area, Finding, Status, plural
from hotstage.cli.doctor.host import Host
from hotstage.clock import SystemClock
from hotstage.config.engines import EnginesConfig
from hotstage.engines.samples import EngineSample, ModelSample
from hotstage.engines.scraper import EngineScraper
from hotstage.engines.target import EngineTarget, read_targets
from hotstage.errors import ConfigError

CONFIGURATION = Area.CONFIGURATION
LOOK_SECONDS = 1.5
FEATURES = ("engine metrics",)
_REMEDIES = {
    "unreachable": "start it, or mend the URL; SGLang needs --enable-metrics, Triton listens on port 8002",
    "timeout": "curl the URL: an engine under load may answer late (engines.timeout_seconds)",
    "status": "mend the path or the token; SGLang needs --enable-metrics",
    "token": "mend token_file, or let the agent read it",
    "page": "mend the URL, or set kind; SGLang needs --enable-metrics",
    "size": "raise engines.max_bytes",
}


def check_engines(host: Host) -> Iterator[Finding]:
    config = host.config.engines
    if not config.endpoints:
        yield Finding(
            CONFIGURATION, "engines", Status.ABSENT,
            "none is configured: what vLLM, SGLang or Triton say of their queues and tokens is not read",
            data={"engines": 0},
        )  # fmt: skip
        return
    try:
        targets = read_targets(config.endpoints)
    except ConfigError as error:
        yield Finding(
            CONFIGURATION, "engines", Status.FAIL, error.message, error.remedy, features=FEATURES,
            data={"engines": len(config.endpoints)},
        )  # fmt: skip
        return
    with ThreadPoolExecutor(len(targets)) as pool:
        yield from pool.map(lambda target: _engine(target, config), targets)


def _engine(target: EngineTarget, config: EnginesConfig) -> Finding:
    limited = replace(config, timeout_seconds=min(config.timeout_seconds, LOOK_SECONDS))
    scraper = EngineScraper(target, limited, SystemClock())
    cut = threading.Timer(limited.timeout_seconds + 0.1, scraper.fetcher.cut_if_late)
    cut.daemon = True
    cut.start()
    scraper.look()
    cut.cancel()
    sample = scraper.sample
    name, data = f"engine {target.name}", {"url": target.shown_url, "instance": target.instance}
    if sample.reason:
        (kind,) = sample.failures
        return Finding(
            CONFIGURATION, name, Status.WARN, f"{target.shown_url}: {sample.reason}",
            _REMEDIES.get(kind, "curl the URL: that is what was read"),
            features=FEATURES, data={**data, "runtime": None, "reason": kind},
        )  # fmt: skip
    runtime = sample.runtime.value if sample.runtime is not None else None
    known = {**data, "runtime": runtime, "models": [each.model for each in sample.models], "reason": None}
    detail = f"{target.shown_url} is {runtime}: {_told(sample)}"
    if sample.problems:
        return Finding(
            CONFIGURATION, name, Status.WARN, f"{detail}; but {'; '.join(sample.problems)}",
            "those numbers are left out; say what the page shows in a report", features=FEATURES, data=known,
        )  # fmt: skip
    return Finding(CONFIGURATION, name, Status.OK, detail, data=known)


def _told(sample: EngineSample) -> str:
    total: ModelSample = sample.total
    parts = [plural(len(sample.models), "model")]
    for value, what in ((total.queue, "waiting"), (total.running, "running")):
        if not math.isnan(value):
            parts.append(f"{value:g} {what}")
    if not math.isnan(total.kv_use_ratio):
        parts.append(f"KV cache {total.kv_use_ratio:.0%} full")
    return ", ".join(parts)
