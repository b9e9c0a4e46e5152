"""python -m benchmarks. Children import this module too, and nothing through it."""

if __name__ == "__main__":
    from benchmarks.cli import main

    main()
