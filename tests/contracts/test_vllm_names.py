# SPDX-License-Identifier: Apache-2.0
"""What tells whether a vLLM fits the plug-in, on the stand-ins that the plug-in's own tests run."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from vllm_names import differences, main, sources_of

STAND_INS = Path(__file__).parents[1] / "unit/marks/stand_ins"


def off(path: Path) -> set[str]:
    return {line for line in differences(sources_of(path)) if line.startswith("hook off")}


def test_the_newest_has_every_method_and_the_oldest_is_told_what_it_lacks() -> None:
    assert off(STAND_INS / "new") == set()
    assert off(STAND_INS / "old") == {
        "hook off: Scheduler has no _preempt_request",
        "hook off: GPUModelRunner has no sample_tokens or _sample",
        "hook off: no vllm.v1.worker.gpu.mm.encoder_runner.EncoderRunner",
        "hook off: no vllm.v1.worker.gpu.model_runner.GPUModelRunner",
    }


def test_a_wheel_is_read_like_a_folder(tmp_path: Path) -> None:
    wheel = tmp_path / "vllm-1-cp38-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for source in (STAND_INS / "new").rglob("*.py"):
            archive.write(source, source.relative_to(STAND_INS / "new"))
    assert off(wheel) == set()


def test_another_parameter_or_a_missing_attribute_is_told(tmp_path: Path, capsys) -> None:
    file = tmp_path / "vllm/v1/core/sched/scheduler.py"
    file.parent.mkdir(parents=True)
    file.write_text("class Scheduler:\n    def update_from_output(self, everything): ...\n")
    assert main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "hook off: Scheduler.update_from_output has no parameter scheduler_output" in said
    assert "not there: vllm.v1.request.Request.num_output_tokens" in said
