# SPDX-License-Identifier: Apache-2.0
"""A `/metrics` endpoint whose text a test writes: hosts for Prometheus and VictoriaMetrics to scrape."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Exporter:
    """`text()` is asked for each scrape."""

    def __init__(self, text: Callable[[], str]) -> None:
        self.text = text
        self.scrapes = 0
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                exporter.scrapes += 1
                raw = exporter.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.target = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Connections are refused from here on."""
        self._server.shutdown()
        self._server.server_close()


class Host:
    """What one agent would export, in short: counters move with every scrape unless it `is_hung`."""

    def __init__(self, heat: float, p95: str = "NaN") -> None:
        self.heat = heat
        self.p95 = p95
        self.ticks = 0
        self.is_hung = False
        self.has_window = True

    def text(self) -> str:
        if not self.is_hung:
            self.ticks += 10
        route = '{endpoint="/v1/vision",instance_id="i-0",modality="image"}'
        stage = 'stage="vision_encode",modality="image",model_name="m",gpu_uuid="GPU-1"'
        ended = 30 * self.ticks
        lines = [
            "hotstage_up 1",
            f'hotstage_ticks_total{{tick="fast"}} {self.ticks}',
            f"hotstage_endpoint_instance_heat{route} {self.heat}",
            f"hotstage_endpoint_instance_request_rate{route} 1.5",
            f"hotstage_endpoint_instance_latency_p95_seconds{route} {self.p95}",
            f"hotstage_endpoint_instance_requests{route} {ended}",
            'hotstage_instance_load_ratio{instance_id="i-0"} 0.125',
            "hotstage_unattributed_ratio 0.5",
            "hotstage_coverage_attached_symbols 60",
            'hotstage_build_info{version="0",loader="libbpf",rung="S"} 1',
            f'hotstage_stage_duration_seconds_bucket{{{stage},le="0.0625"}} {ended // 2}',
            f'hotstage_stage_duration_seconds_bucket{{{stage},le="0.125"}} {ended}',
            f'hotstage_stage_duration_seconds_bucket{{{stage},le="+Inf"}} {ended}',
            f"hotstage_stage_duration_seconds_count{{{stage}}} {ended}",
            'hotstage_breaker_state{breaker="host",state="open"} 1',
            'hotstage_breaker_state{breaker="host",state="closed"} 0',
            f'hotstage_request_class_requests_total{{request_class="vlm",size="up_to_1K"}} {3 * self.ticks}',
            f'hotstage_request_class_requests_total{{request_class="vlm",size="over_128K"}} {self.ticks}',
            'hotstage_request_class_latency_p99_seconds{request_class="vlm",size="all"} 1.5',
            'hotstage_request_class_p99_target_seconds{request_class="vlm"} 0.75',
            'hotstage_endpoint_slo_penalty_seconds{endpoint="/v1/vision",request_class="vlm"} 0.25',
            'hotstage_ttft_p95_seconds{modality="image"} 0.5',
            'hotstage_ttft_part_mean_seconds{modality="image",part="vision_encode"} 0.1875',
            'hotstage_ttft_part_mean_seconds{modality="image",part="queue"} 0.0625',
        ]
        if self.has_window:
            lines.append(
                'hotstage_window_active{kind="stage_latency",severity="critical",stage="vision_encode"} 1'
            )
        return "\n".join(lines) + "\n"


@contextmanager
def exporting(text: Callable[[], str]) -> Iterator[Exporter]:
    made = Exporter(text)
    try:
        yield made
    finally:
        made.stop()
