# SPDX-License-Identifier: Apache-2.0
"""What processes told of themselves while they were watched: their GPUs, their contexts, their own stages."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hotstage.probes.ended_names import EndedNames
from hotstage.probes.maps.guarded import GuardedMaps
from hotstage.text import clean_name, format_uuid


class ToldByProcesses:
    """Between the engine's start and close; any thread may call. Gone processes stay for a while."""

    def __init__(self, maps: GuardedMaps) -> None:
        self._maps = maps
        self._ended_names = EndedNames()

    def device_uuids(self) -> Mapping[tuple[int, int], str]:
        """(pid, ordinal) → `GPU-…`, as the driver told that process."""
        with self._maps.held() as maps:
            return {key: format_uuid(raw) for key, raw in maps.device_uuids().items()}

    def contexts(self) -> Mapping[tuple[int, int], int]:
        """(pid, CUcontext) → device ordinal, as that process made them."""
        with self._maps.held() as maps:
            return maps.contexts()

    def stage_names(self) -> Mapping[tuple[int, int], str]:
        """(pid, stage id 32..63) → the name of its own stage, cleaned, maybe empty; of ended ones, too."""
        with self._maps.held() as maps:
            living = {key: clean_name(raw) for key, raw in maps.stage_names().items()}
        return self._ended_names.beside(living)

    def keep_names(self, raw: Mapping[tuple[int, int], bytes], pids: Collection[int]) -> None:
        """Stage names as the kernel has them; those of `pids` are about to be removed there."""
        self._ended_names.keep({key: clean_name(name) for key, name in raw.items() if key[0] in pids})
