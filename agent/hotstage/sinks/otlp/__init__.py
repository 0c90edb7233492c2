# SPDX-License-Identifier: Apache-2.0
"""OTLP/HTTP: metrics, spans of finished requests and window events to a collector.

The tick hands notes to `sink.py` and goes on; all else runs in one thread (`exporter.py`), which alone
imports OpenTelemetry. What is not exported is counted by reason.
"""
