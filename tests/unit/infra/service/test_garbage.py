import subprocess
import sys

SCRIPT = """
import gc, weakref
from infra.service.garbage import Freezer

class Node:
    pass

def circle():
    node = Node()
    node.itself = node
    return node

gc.callbacks.append(Freezer())
before = gc.get_freeze_count()
held = [circle() for _ in range(before // 4)]
gc.collect()
assert not [one for one in gc.get_objects() if isinstance(one, Node)], "what survives is frozen"
seen = weakref.ref(held[0])
held.clear()
gc.collect()
assert seen() is not None
for _ in range(8):
    held += [[] for _ in range(before // 4)]
    gc.collect()
assert seen() is None, "garbage among what is frozen is found when that has doubled"
assert gc.get_freeze_count() >= len(held)
"""


def test_frozen_garbage_is_collected_later() -> None:
    """In a separate process, because it freezes all objects."""
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
