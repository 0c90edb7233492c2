# SPDX-License-Identifier: Apache-2.0
"""`python -m hotstage` is the `hotstage` command."""

from hotstage.cli.main import main

if __name__ == "__main__":
    main()
