"""`python -m infra.engines DESCRIPTOR LEVEL FORM`: the engine server as a service starts it."""

import sys

from infra import logs
from infra.engines.serving import serve_child

if __name__ == "__main__":
    descriptor, level, form = sys.argv[1:]
    logs.configure(level, form)
    serve_child(int(descriptor))
