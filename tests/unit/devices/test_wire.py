# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotstage.devices.samples import DEVICE_DTYPE
from hotstage.devices.wire import DEVICE_FIELDS, LAYOUTS, RecordKind, RecordReader, Status, pack, unpack

STATE = (7, Status.working, 2, b"550.1", b"")
XID = (9, 79, b"0000:65:00")
DEVICE = tuple(
    b"GPU-1" if code.endswith("s") else 3 if code in "QI" else math.nan for _, code in DEVICE_FIELDS
)
STREAM = pack(RecordKind.state, STATE) + pack(RecordKind.device, DEVICE) + pack(RecordKind.xid, XID)


@given(st.lists(st.integers(1, len(STREAM)), max_size=12))
def test_records_come_out_whole_however_they_are_cut(cuts):
    reader, records, last = RecordReader(), [], 0
    for cut in [*sorted(cuts), len(STREAM)]:
        records += reader.feed(STREAM[last:cut])
        last = max(last, cut)
    assert [kind for kind, _ in records] == [RecordKind.state, RecordKind.device, RecordKind.xid]
    assert unpack(*records[2])["xid"] == 79 and unpack(*records[0])["status"] == Status.working


@pytest.mark.parametrize("junk", [b"\0" * 12, STREAM[1:], b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_stream_that_is_not_ours_is_refused(junk):
    with pytest.raises(ValueError, match="not a record"):
        RecordReader().feed(junk)


def test_the_row_is_the_record():
    assert DEVICE_DTYPE.itemsize == LAYOUTS[RecordKind.device].size
    row = np.frombuffer(pack(RecordKind.device, DEVICE)[12:], DEVICE_DTYPE)[0]
    assert (row["uuid"], row["index"]) == (b"GPU-1", 3)
    assert math.isnan(row["power_watts"])
