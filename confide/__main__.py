"""`python -m confide` works from a checkout."""

import sys


def main() -> int:
    """Run the command line."""
    from confide.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
