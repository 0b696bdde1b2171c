"""`python -m longshore`."""

from longshore.cli.main import main

main()
