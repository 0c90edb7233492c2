# SPDX-License-Identifier: Apache-2.0
"""Dashboards, recording rules and alert rules as tables, and what Grafana and Prometheus are given of them.

    PYTHONPATH=grafana python -m generate           # what `make generate` runs; --check compares

Every metric comes from `hotstage.sinks.metrics`: a name is never typed in. Never a network, never a clock.
"""
