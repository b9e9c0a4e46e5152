"""`python -m sessions` is `deltacompact-sessions`."""

from sessions.cli import main

if __name__ == "__main__":
    main()
