"""`python -m confide` works from a checkout."""

import sys


def main() -> int:
    """Run the command line."""
    try:
        from confide.cli.main import main as run
    except KeyboardInterrupt:
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
