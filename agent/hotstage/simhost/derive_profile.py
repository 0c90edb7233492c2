# SPDX-License-Identifier: Apache-2.0
"""Makes `workload_profile.json` from public traces.

Run `python -m hotstage.simhost.derive_profile TRACES > agent/hotstage/simhost/workload_profile.json`, where
TRACES is a folder with AzurePublicDataset's `azure_llm_2023/` and ServeGen's `servegen_mm/`. The profile
keeps quantiles only; audio and video have no public trace and are synthetic. Attribution is in NOTICE.
"""

from __future__ import annotations

import ast
import csv
import json
import re
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The middles of forty equal shares: a single extreme request does not become one in forty.
QUANTILES = (np.arange(40) + 0.5) / 40

# No public trace has an audio or video mix: clips and sampled frames as commonly configured.
SYNTHETIC: dict[str, dict[str, list[float]]] = {
    "audio": {"media_tokens": [100, 250, 500, 750, 1500], "output_tokens": [10, 30, 60, 90, 180]},
    "video": {"media_tokens": [1024, 2048, 3072, 4096, 8192], "output_tokens": [20, 50, 90, 140, 260]},
}


def derive(traces: Path) -> dict[str, Any]:
    """Per modality evenly spaced quantiles of tokens; quantiles of gaps between arrivals ÷ their mean."""
    conversation = _rows(traces / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv")
    image = _servegen(traces / "servegen_mm" / "data" / "multimodal" / "mm-image")
    return {
        "origin": {
            "text": "Azure LLM inference trace 2023, conversation (CC-BY-4.0)",
            "image": "ServeGen multimodal image workload (Apache-2.0)",
            "audio": "synthetic",
            "video": "synthetic",
            "interarrival": "Azure LLM inference trace 2023, conversation (CC-BY-4.0)",
        },
        "interarrival_ratio": _quantiles(_gaps(conversation)),
        "modalities": {
            "text": {
                "text_tokens": _quantiles(_column(conversation, "ContextTokens")),
                "output_tokens": _quantiles(_column(conversation, "GeneratedTokens")),
            },
            "image": {
                "media_tokens": _weighted_quantiles(image["image_tokens"]),
                "text_tokens": _weighted_quantiles(image["text_tokens"]),
                "output_tokens": _weighted_quantiles(image["output_tokens"]),
            },
            **SYNTHETIC,
        },
    }


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _column(rows: list[dict[str, str]], name: str) -> NDArray[np.float64]:
    return np.array([float(row[name]) for row in rows])


def _gaps(rows: list[dict[str, str]]) -> NDArray[np.float64]:
    # Seven digits after the point: one more than datetime reads.
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26] + "+00:00").timestamp() for row in rows]
    gaps = np.diff(np.sort(times))
    return np.asarray(gaps / gaps.mean(), dtype=np.float64)


def _quantiles(values: NDArray[np.float64]) -> list[float]:
    return [round(float(value), 4) for value in np.quantile(values, QUANTILES)]


def _servegen(folder: Path) -> dict[str, Counter[int]]:
    """Histograms of all clients, each weighted by the requests sent while it held (six hours)."""
    total: dict[str, Counter[int]] = {
        key: Counter() for key in ("image_tokens", "text_tokens", "output_tokens")
    }
    for dataset in sorted(folder.glob("chunk-*-dataset.json")):
        windows = np.atleast_2d(
            np.genfromtxt(dataset.with_name(dataset.name.replace("dataset.json", "trace.csv")), delimiter=",")
        )
        spans = json.loads(dataset.read_text())
        starts = sorted(int(start) for start in spans)
        for start, end in zip(starts, [*starts[1:], 86_400], strict=True):
            inside = (windows[:, 0] >= start) & (windows[:, 0] < end)
            weight = float(windows[inside, 1].sum())
            for key, histogram in total.items():
                shares = ast.literal_eval(spans[str(start)][key])
                for tokens, share in shares.items():
                    histogram[int(tokens)] += weight * share
    return total


def _weighted_quantiles(histogram: Counter[int]) -> list[float]:
    values = np.array(sorted(histogram), dtype=np.float64)
    reached = np.cumsum([histogram[int(value)] for value in values])
    return [float(values[min(np.searchsorted(reached, q * reached[-1]), len(values) - 1)]) for q in QUANTILES]


if __name__ == "__main__":
    text = json.dumps(derive(Path(sys.argv[1])), indent=1)
    sys.stdout.write(re.sub(r"\n\s+(?=[\d\]])", " ", text) + "\n")  # one list, one line
