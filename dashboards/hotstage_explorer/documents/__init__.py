# SPDX-License-Identifier: Apache-2.0
"""One kind of the agent's documents each: its frozen rows and the parser that trusts nothing."""
