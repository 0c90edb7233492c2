# SPDX-License-Identifier: Apache-2.0
import pytest

from hotstage.stages.processes import process_is_alive


@pytest.fixture
def proc(tmp_path):
    def make(pid, state):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a ) Z b) {state} 1 1 1")

    make(10, "S")
    make(11, "Z")
    return tmp_path


@pytest.mark.parametrize(("pid", "alive"), [(10, True), (11, False), (12, False)])
def test_a_process_lives_unless_it_is_gone_or_a_zombie(proc, pid, alive):
    assert process_is_alive(pid, proc) is alive
