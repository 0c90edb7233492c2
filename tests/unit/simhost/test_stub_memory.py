# SPDX-License-Identifier: Apache-2.0
"""The stub libcuda's allocator: capacity, fragmentation, what it says of itself in the shared page."""

from __future__ import annotations


def test_the_whole_device_can_be_had_and_no_byte_more(driver, page):
    codes = driver("""
open_context()
print(allocate(1 << 20)[0], allocate(1)[0])
""")
    assert codes == "0 2"
    assert (page.processes[0].used_bytes, page.processes[0].failed_allocations) == (1 << 20, 1)


def test_enough_free_memory_in_pieces_is_not_enough_in_one(driver, page):
    codes = driver("""
open_context()
blocks = [allocate(1 << 16)[1] for _ in range(16)]
for block in blocks[::2]: check(cuda.cuMemFree_v2(block))
print(allocate(1 << 17)[0])
check(cuda.cuMemFree_v2(blocks[1]))
print(allocate(3 << 16)[0])
""")
    assert codes == "2\n0"
    process = page.processes[0]
    assert process.used_bytes == 10 << 16
    assert process.largest_free_bytes == 1 << 16
    assert process.peak_bytes == 1 << 20


def test_freed_neighbours_become_one_again(driver, page):
    driver("""
open_context()
blocks = [allocate(1 << 18)[1] for _ in range(4)]
for index in (1, 3, 0, 2): check(cuda.cuMemFree_v2(blocks[index]))
print(allocate(1 << 20)[0])
""")
    assert page.processes[0].used_bytes == 1 << 20


def test_the_first_block_that_fits_is_taken(driver):
    same = driver("""
open_context()
blocks = [allocate(4096)[1] for _ in range(4)]
check(cuda.cuMemFree_v2(blocks[0])); check(cuda.cuMemFree_v2(blocks[2]))
print(allocate(512)[1].value == blocks[0].value, allocate(4096)[1].value == blocks[2].value)
""")
    assert same == "True True"


def test_freeing_what_is_not_allocated_is_an_error(driver):
    codes = driver("""
open_context()
block = allocate(512)[1]
print(cuda.cuMemFree_v2(c_uint64(block.value + 512)), cuda.cuMemFree_v2(block), cuda.cuMemFree_v2(block))
print(cuda.cuMemFree_v2(c_uint64(0)), allocate(0)[0])
""")
    assert codes == "1 0 1\n0 1"


def test_memory_info_counts_all_processes_of_the_device(driver, page):
    page.devices[0].total_bytes = 16 << 20
    page.processes[0].pid, page.processes[0].device, page.processes[0].held_bytes = 1, 0, 4 << 20
    free = driver("""
open_context()
allocate(1 << 18)
free, total = c_size_t(), c_size_t()
check(cuda.cuMemGetInfo_v2(byref(free), byref(total))); print(free.value, total.value)
""")
    assert free == f"{10 << 20} {16 << 20}", "a page of 2 MiB is used by what lies in it"


def test_a_page_is_used_once_however_many_lie_in_it(driver, page):
    page.devices[0].total_bytes = 16 << 20
    driver("""
open_context()
blocks = [allocate(size)[1] for size in (1 << 20, 1 << 20, 3 << 20, 1 << 20, 4 << 20)]
check(cuda.cuMemFree_v2(blocks[0])); check(cuda.cuMemFree_v2(blocks[4]))
""")
    assert (page.processes[0].used_bytes, page.processes[0].held_bytes) == (5 << 20, 6 << 20)
    assert page.processes[0].largest_free_bytes == 10 << 20


def test_physical_memory_apart_from_addresses_counts_as_used(driver, page):
    codes = driver("""
open_context()
handle, address = c_uint64(), c_uint64()
check(cuda.cuMemCreate(byref(handle), c_size_t(1 << 19), None, c_uint64(0)))
print(allocate(1 << 20)[0])
check(cuda.cuMemAddressReserve(byref(address), c_size_t(1 << 40), c_size_t(0), c_uint64(0), c_uint64(0)))
check(cuda.cuMemMap(address, c_size_t(1 << 19), c_size_t(0), handle, c_uint64(0)))
check(cuda.cuMemUnmap(address, c_size_t(1 << 19)))
check(cuda.cuMemRelease(handle))
check(cuda.cuMemAddressFree(address, c_size_t(1 << 40)))
print(allocate(1 << 20)[0])
""")
    assert codes == "2\n0"
    assert page.processes[0].used_bytes == 1 << 20
