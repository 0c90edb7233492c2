# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hotstage.errors import ConfigError
from hotstage.simhost.annotations import Mode
from hotstage.simhost.options import parse_options


def test_faults_of_specs_and_of_a_file_come_together(tmp_path):
    path = tmp_path / "faults.toml"
    path.write_text('[[fault]]\nname = "slow-prefill"\nstage = "llm_prefill"\n')
    options = parse_options(
        ["--directory", str(tmp_path), "--fault", "hang@3", "--fault", "xid", "--faults", str(path)]
    )
    assert [fault.name for fault in options.faults] == ["hang", "xid", "slow-prefill"]
    assert (options.seed, options.seconds, options.calls_scale) == (1, None, 1.0)
    assert options.directory == Path(tmp_path).resolve()


def test_a_host_marks_and_gives_each_instance_one_gpu_unless_told_otherwise(tmp_path):
    plain = parse_options(["--directory", str(tmp_path)])
    assert (plain.mode, plain.gpus) == (Mode.marks, 1)
    other = parse_options(["--directory", str(tmp_path), "--mode", "fingerprints", "--gpus", "2"])
    assert (other.mode, other.gpus) == (Mode.fingerprints, 2)
    with pytest.raises(SystemExit):
        parse_options(["--directory", str(tmp_path), "--mode", "guesses"])


def test_a_bad_fault_ends_the_host_before_anything_starts(tmp_path):
    with pytest.raises(ConfigError):
        parse_options(["--directory", str(tmp_path), "--fault", "quake"])
    done = subprocess.run(
        [sys.executable, "-m", "hotstage.simhost.host", "--directory", str(tmp_path), "--fault", "quake"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown fault 'quake'" in done.stderr
    assert "one of: encoder-stall" in done.stderr
    assert list(tmp_path.iterdir()) == []
