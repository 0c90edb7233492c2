# SPDX-License-Identifier: Apache-2.0
"""What holds the probes back: the deny list, the kill switch, and the governor of what they may cost."""
