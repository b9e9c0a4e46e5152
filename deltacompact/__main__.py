"""The program deltacompact, also as `python -m deltacompact`."""

from deltacompact.base.interrupts import interrupts_end_it


def main() -> None:
    interrupts_end_it()
    from deltacompact.cli import main

    main()


if __name__ == "__main__":
    main()
