"""`python -m infra.cli` is `earshot`."""

from infra.cli import main

main()
