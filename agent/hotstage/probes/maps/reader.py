# SPDX-License-Identifier: Apache-2.0
"""Hash maps read in batches into numpy buffers that are used again; it knows sizes, no names.

A batch read is not a snapshot: entries that come or go meanwhile may be missing; none is torn within 8 bytes.
"""

from __future__ import annotations

import ctypes
import struct

import numpy as np
from numpy.typing import NDArray

from hotstage.probes import bpf

_CHUNK = 16384
_TOKEN_BYTES = 64


class HashReader:
    """Reads one hash map; `read` gives views that the next `read` overwrites."""

    def __init__(self, fd: int, key_dtype: np.dtype[np.void], value_dtype: np.dtype[np.void]) -> None:
        info = bpf.map_info(fd)
        if (info.key_bytes, info.value_bytes) != (key_dtype.itemsize, value_dtype.itemsize):
            raise ValueError(
                f"map {info.name}: {info.key_bytes} + {info.value_bytes} bytes in the kernel, "
                f"{key_dtype.itemsize} + {value_dtype.itemsize} expected"
            )
        self.fd = fd
        self.capacity = info.max_entries
        self._keys = np.zeros(self.capacity, key_dtype)
        self._values = np.zeros(self.capacity, value_dtype)
        self._token = ctypes.create_string_buffer(_TOKEN_BYTES)
        self._attributes = ctypes.create_string_buffer(56)

    def read(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Keys and values, (N,) each, in the same order; valid until the next read. Raises OSError."""
        found, is_first, chunk = 0, True, _CHUNK
        while found < self.capacity:
            room = min(chunk, self.capacity - found)
            try:
                count, is_last = self._lookup_batch(found, room, is_first)
            except OSError as error:
                if not _is_no_space(error) or room == self.capacity - found:
                    raise
                chunk *= 2  # one hash bucket holds more than the chunk
                continue
            found += count
            is_first = False
            if is_last:
                break
        return self._keys[:found], self._values[:found]

    def delete(self, keys: NDArray[np.void]) -> int:
        """Remove these keys; how many were there."""
        return sum(bpf.delete(self.fd, key.tobytes()) for key in keys)

    def _lookup_batch(self, start: int, count: int, is_first: bool) -> tuple[int, bool]:
        token = ctypes.addressof(self._token)
        struct.pack_into(
            "<QQQQIIQQ",
            self._attributes,
            0,
            0 if is_first else token,
            token,
            self._keys.ctypes.data + start * self._keys.itemsize,
            self._values.ctypes.data + start * self._values.itemsize,
            count,
            self.fd,
            0,
            0,
        )
        is_last = False
        try:
            bpf.bpf(bpf.MAP_LOOKUP_BATCH, self._attributes)
        except FileNotFoundError:  # the end; what was found before it is there
            is_last = True
        written: int = struct.unpack_from("<I", self._attributes, 32)[0]
        return written, is_last


def _is_no_space(error: OSError) -> bool:
    return error.errno == 28
