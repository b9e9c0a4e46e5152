"""The program deltacompact-sessions, also as `python -m sessions`."""

from deltacompact.base.interrupts import interrupts_end_it


def main() -> None:
    interrupts_end_it()
    from sessions.cli import main

    main()


if __name__ == "__main__":
    main()
