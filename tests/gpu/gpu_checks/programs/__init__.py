# SPDX-License-Identifier: Apache-2.0
"""Programs that use CUDA, each a process of its own: the checks look at them from outside."""
