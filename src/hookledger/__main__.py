"""`python -m hookledger`."""

from .cli import main

main()
