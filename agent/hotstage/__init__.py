# SPDX-License-Identifier: Apache-2.0
"""hotstage: which stage of which modality starves which other one, on one GPU host."""

__version__ = "0.1.0"
