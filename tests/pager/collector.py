# A runtime with a garbage collector: each collection is an anomalous phase for the pager. Prints
# how many collections said so, and that all is as it was.
import ctypes, gc, sys

agent = ctypes.CDLL(None)
told = [0, 0]


def phase(step, _info):
    first = told == [0, 0]
    ok = agent.odfork_page_advise(1 if step == "start" else 0) == 0
    told[0 if ok else 1] += 1
    if first:
        # The test looks at the daemon now, and answers.
        print("phase", flush=True)
        sys.stdin.readline()


nodes = [[i, str(i) * 8, None] for i in range(60000)]
for i, node in enumerate(nodes):
    node[2] = nodes[i * 7919 % len(nodes)]
gc.callbacks.append(phase)
for _ in range(3):
    gc.collect()
    assert all(
        node[2][0] == i * 7919 % len(nodes) and node[1] == str(i) * 8
        for i, node in enumerate(nodes)
    )
gc.callbacks.clear()
assert told[0] >= 6 and told[1] == 0, told
print("ok", told)
