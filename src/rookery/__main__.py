"""`python -m rookery` is the command `rookery`."""

from rookery.cli.main import main

if __name__ == "__main__":
    main()
