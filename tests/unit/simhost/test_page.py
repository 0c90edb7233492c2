# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes

from hotstage.simhost.gpu import Gpu
from hotstage.simhost.page import MAX_XIDS, Device, Page, Process, shared_page


def test_the_twin_in_c_has_the_same_sizes():
    assert (ctypes.sizeof(Device), ctypes.sizeof(Process)) == (232, 56)
    assert ctypes.sizeof(Page) == 24 + 8 * 232 + 32 * 56 + 16 * 16


def test_a_server_compares_the_sizes_when_it_loads(stubs):
    Gpu(stubs.server)


def test_the_page_is_a_file_that_goes_with_it(tmp_path):
    path = tmp_path / "page"
    with shared_page(path) as page:
        page.device_count = 7
        assert path.read_bytes()[8:12] == (7).to_bytes(4, "little")
    assert not path.exists()


def test_the_newest_xid_is_found_by_the_count(tmp_path):
    with shared_page(tmp_path / "page") as page:
        for code in range(MAX_XIDS + 3):
            page.raise_xid(1, code, 1000 + code)
        newest = page.xids[(page.xid_count - 1) % MAX_XIDS]
        assert (newest.device, newest.code, newest.at_ns) == (1, MAX_XIDS + 2, 1000 + MAX_XIDS + 2)
