# SPDX-License-Identifier: Apache-2.0
"""A ring drained from a file laid out as the kernel lays it out: order, wrap, busy and discarded records."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from hotstage.probes.maps.ring import RingReader

SIZE = 4096
PAGE = mmap.PAGESIZE
SMALL = np.dtype([("kind", "<u4"), ("value", "<u4")])
LARGE = np.dtype([("kind", "<u4"), ("pad", "<u4"), ("values", "<u8", (12,))])
DTYPES = {1: SMALL, 2: LARGE}
BUSY, DISCARDED = 1 << 31, 1 << 30


class Producer:
    """Writes records as the kernel does; the data is there twice, so that none wraps."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("ring")
        os.ftruncate(self.fd, 2 * PAGE + 2 * SIZE)
        self.position = 0

    def put(self, payload: bytes, flags: int = 0) -> int:
        at = self.position
        record = struct.pack("<II", len(payload) | flags, 0) + payload
        for index, byte in enumerate(record):
            place = (at + index) % SIZE
            for copy in (0, SIZE):
                os.pwrite(self.fd, bytes([byte]), 2 * PAGE + copy + place)
        self.position += -(-len(record) // 8) * 8
        os.pwrite(self.fd, struct.pack("<Q", self.position), PAGE)
        return at

    def set_header(self, at: int, header: int) -> None:
        for copy in (0, SIZE):
            os.pwrite(self.fd, struct.pack("<I", header), 2 * PAGE + copy + at % SIZE)

    @property
    def consumed(self) -> int:
        position: int = struct.unpack("<Q", os.pread(self.fd, 8, 0))[0]
        return position


@pytest.fixture
def producer() -> Iterator[Producer]:
    made = Producer()
    yield made
    os.close(made.fd)


def small(value: int) -> bytes:
    return struct.pack("<II", 1, value)


def large(value: int) -> bytes:
    return struct.pack("<II12Q", 2, 0, *([value] * 12))


def test_records_of_two_kinds_come_in_order(producer: Producer) -> None:
    reader = RingReader(producer.fd, SIZE)
    for value in (1, 2):
        producer.put(small(value))
    producer.put(large(3))
    producer.put(small(4))
    rows = reader.drain(DTYPES)
    assert rows[1]["value"].tolist() == [1, 2, 4]
    assert rows[2]["values"][0].tolist() == [3] * 12
    assert producer.consumed == producer.position
    assert reader.pending_bytes() == 0
    reader.close()


def test_nothing_new_is_an_empty_array_of_each_kind(producer: Producer) -> None:
    reader = RingReader(producer.fd, SIZE)
    rows = reader.drain(DTYPES)
    assert {kind: (len(found), found.dtype) for kind, found in rows.items()} == {1: (0, SMALL), 2: (0, LARGE)}
    reader.close()


def test_a_record_still_being_written_holds_back_those_behind_it(producer: Producer) -> None:
    reader = RingReader(producer.fd, SIZE)
    producer.put(small(1))
    busy = producer.put(small(2), BUSY)
    producer.put(small(3))
    assert reader.drain(DTYPES)[1]["value"].tolist() == [1]
    producer.set_header(busy, 8)
    assert reader.drain(DTYPES)[1]["value"].tolist() == [2, 3]
    reader.close()


def test_it_is_stuck_when_nothing_comes_out_and_not_when_much_goes_in(producer: Producer) -> None:
    reader = RingReader(producer.fd, SIZE)
    for _ in range(3):  # after each drain it is filled again
        for value in range(200):
            producer.put(small(value))
        assert not reader.is_stuck()
        assert len(reader.drain(DTYPES)[1]) == 200
    busy = producer.put(small(0), BUSY)
    reader.drain(DTYPES)
    assert not reader.is_stuck()
    for value in range(200):
        producer.put(small(value))
    reader.drain(DTYPES)
    assert reader.is_stuck()
    producer.set_header(busy, 8)
    reader.drain(DTYPES)
    assert not reader.is_stuck()
    reader.close()


def test_a_discarded_record_is_passed_over(producer: Producer) -> None:
    reader = RingReader(producer.fd, SIZE)
    for value, flags in ((1, 0), (2, DISCARDED), (3, 0)):
        producer.put(small(value), flags)
    assert reader.drain(DTYPES)[1]["value"].tolist() == [1, 3]
    assert producer.consumed == producer.position
    reader.close()


def test_an_unknown_or_short_record_is_skipped(producer: Producer) -> None:
    reader = RingReader(producer.fd, SIZE)
    producer.put(struct.pack("<II", 9, 0))
    producer.put(struct.pack("<I", 1))
    producer.put(small(7))
    assert reader.drain(DTYPES)[1]["value"].tolist() == [7]
    reader.close()


def test_records_that_wrap_around_the_end_are_whole(producer: Producer) -> None:
    reader = RingReader(producer.fd, SIZE)
    seen: list[int] = []
    for value in range(101):
        producer.put(large(value))
        if value % 7 == 0:
            seen += reader.drain(DTYPES)[2]["values"][:, 11].tolist()
    seen += reader.drain(DTYPES)[2]["values"][:, 0].tolist()
    assert seen == list(range(101))
    reader.close()


def test_rows_are_copies_that_outlive_the_ring(producer: Producer) -> None:
    reader = RingReader(producer.fd, SIZE)
    producer.put(small(5))
    rows = reader.drain(DTYPES)[1]
    for value in range(300):
        producer.put(small(value))
    reader.close()
    assert rows["value"].tolist() == [5]
    with pytest.raises(ValueError, match="closed"):
        reader.drain(DTYPES)
