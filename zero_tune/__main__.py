"""``python -m zero_tune``."""

from zero_tune.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
