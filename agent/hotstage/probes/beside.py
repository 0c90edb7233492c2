# SPDX-License-Identifier: Apache-2.0
"""Sources that come up beside the call counters, each in a thread of its own: lines of the kernel log, the
tracepoints of GPU drivers, the operator's own programs. The agent runs without any of them; whatever they
cannot do, they say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from hotstage.clock import Clock
from hotstage.config.settings import ProbesConfig
from hotstage.probes.coverage import Side
from hotstage.probes.custom.watch import CustomProbes
from hotstage.probes.driver.report import DriverReport
from hotstage.probes.driver.watch import DriverWatch
from hotstage.probes.samples import XidEvent
from hotstage.probes.xid import XidWatch


class Beside:
    """`start` returns at once; `drain` on the fast tick, `note_losses` on the slow one."""

    def __init__(self, config: ProbesConfig, clock: Clock, pids: Callable[[], Iterable[int]]) -> None:
        """`pids`: processes that use a GPU, as far as they are known."""
        self._config = config
        self.xid = XidWatch()
        self.driver = DriverWatch(
            clock,
            pids,
            ioctls=config.gpu_ioctls,
            slow_ioctl_ns=int(config.slow_call_seconds * 1e9),
            proc_root=Path(config.proc_root),
        )
        directory = config.custom_directory
        self.custom = CustomProbes(None if directory is None else Path(directory), clock)
        self._off: str | None = None
        self._lost: Mapping[str, int] = {}

    def start(self) -> None:
        if self._config.xid:
            self.xid.start()
        else:
            self.xid.side = Side("off", None, "switched off in the configuration")
        if self._config.driver:
            self.driver.start()
        self.custom.start()

    def drain(self) -> tuple[XidEvent, ...]:
        """XIDs since the last call, those of the kernel log first."""
        return (*self.xid.drain(), *self.driver.drain())

    def urgent_fds(self) -> tuple[int, ...]:
        """Rings that wake whoever polls them."""
        return self.xid.urgent_fds()

    def keep(self, off: str | None) -> None:
        """Once a second: note losses; `off`, the reason of a kill switch, lets go of drivers' tracepoints and
        of the operator's programs. Lines of the kernel log tax nobody and stay.
        """
        if off != self._off:
            self._off = off
            self.custom.hold(off)
        self._hold_driver(off)
        self.note_losses()

    def driver_report(self, off: str | None, launches: int | None) -> DriverReport:
        """As of now, also in the second before `keep` hears of a switch; arguments as there and of
        `DriverWatch.report`.
        """
        self._hold_driver(off)
        return self.driver.report(launches)

    def _hold_driver(self, off: str | None) -> None:
        if self._config.driver:
            self.driver.hold(off)

    def note_losses(self) -> None:
        """Read them for `with_losses`, which the fast tick asks ten times as often."""
        self._lost = {"lost_urgent_ring": self.xid.lost(), "lost_driver_events": self.driver.lost()}

    def with_losses(self, losses: Mapping[str, int]) -> Mapping[str, int]:
        """`losses` with those of these sources added, as of the last `note_losses`: their rings and maps are
        their own.
        """
        if not any(self._lost.values()):
            return losses
        return {**losses, **{name: losses[name] + count for name, count in self._lost.items()}}

    def with_losses_now(self, losses: Mapping[str, int]) -> Mapping[str, int]:
        """The same, as of now."""
        self.note_losses()
        return self.with_losses(losses)

    def close(self) -> None:
        self.xid.close()
        self.driver.close()
        self.custom.close()
