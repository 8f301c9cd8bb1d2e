# A program with garbage-collection phases: a graph whose nodes are replaced, leaving cycles; three
# full collections, each marked.
import gc
import os
import random

marks = int(os.environ.get("ODFORK_PAGE_MARKS", "-1"))


def mark(phase, info):
    if info["generation"] == 2 and marks >= 0:
        os.write(marks, b"# anomalous on\n" if phase == "start" else b"# anomalous off\n")


class Node:
    def __init__(self, key):
        self.key, self.links = key, []


gc.disable()
gc.callbacks.append(mark)
random.seed(1)
graph = [Node(key) for key in range(4000)]
for phase in range(3):
    low = phase * 1000
    for step in range(2000):
        node = graph[low + random.randrange(1500)]
        node.links.append(graph[low + random.randrange(1500)])
        if len(node.links) > 6:
            graph[node.key] = Node(node.key)
            graph[node.key].links.append(node)
            node.links = [node]
    gc.collect()
