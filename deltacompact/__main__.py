"""python -m deltacompact: the command line."""

from deltacompact.cli import main

if __name__ == "__main__":
    main()
