# SPDX-License-Identifier: Apache-2.0
"""The checks that need a real GPU, or its simulated stand-in: what `tests/gpu/run.sh` runs."""
