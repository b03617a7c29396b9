"""`python -m confide` works from a checkout."""

import os
import sys


def main() -> int:
    """Run the command line."""
    # Threads of torch that wait must not spin: on a loaded machine that made a training ten times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from confide.cli.main import main as run
    except KeyboardInterrupt:
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
