# SPDX-License-Identifier: Apache-2.0
"""Which loader loads: the configured one; `auto` is libbpf, and bcc where there is no libbpf."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from hotstage.errors import LoadError, PreflightError
from hotstage.probes.loader.base import LoadedPrograms, Loader, MapSizes, Rung
from hotstage.probes.loader.bcc import BccLoader
from hotstage.probes.loader.held import HeldPrograms
from hotstage.probes.loader.libbpf import LibbpfLoader

log = logging.getLogger(__name__)


def load_with(
    choice: str, sizes: MapSizes, rung: Rung | None, given: Loader | None = None
) -> tuple[Loader, LoadedPrograms]:
    """`choice`: auto, libbpf or bcc; `given` is taken before all. Raises as `Loader.load`."""
    if given is not None:
        return given, given.load(sizes, rung)
    if choice != "bcc":
        try:
            libbpf = LibbpfLoader()
            return libbpf, libbpf.load(sizes, rung)
        except PreflightError as error:
            if choice == "libbpf" or isinstance(error, LoadError):
                raise
            log.warning("libbpf cannot be used, trying bcc", extra={"reason": str(error)})
    bcc = BccLoader()
    return bcc, bcc.load(sizes, rung)


def refused_rungs(loader: Loader) -> Mapping[str, str]:
    """Rung → why it was not taken, of the better ones than that in use."""
    refusals = loader.refusals if isinstance(loader, HeldPrograms) else {}
    return {str(rung): reason for rung, reason in refusals.items()}
