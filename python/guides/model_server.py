"""A model that is loaded once, without a GPU; each worker touches its device after the fork.

    python model_server.py

A CUDA context does not survive a fork, so the template must not make one. It loads the weights
into ordinary memory; the worker that needs a device copies them there. Whether the template kept
to that can be checked: a context brings threads, and then `zygote.fallback` is not empty.
"""

import random

import demo

import odfork

WEIGHTS = []


def load():
    """In the template: no call here may touch a device."""
    chance = random.Random(1)
    WEIGHTS.extend(chance.random() for _ in range(200_000))


def infer(inputs):
    """In a child: here a device may be opened, as torch.tensor(WEIGHTS, device="cuda") does."""
    return sum(w * x for w, x in zip(WEIGHTS, inputs))


def main():
    import model_server

    recipe = dict(imports=["model_server"], setup="model_server:load", path=[demo.HERE])
    with odfork.Zygote(**recipe) as zygote:
        assert not zygote.fallback, zygote.fallback
        answers = [zygote.call(model_server.infer, [1.0] * count) for count in (1, 2, 3)]
    assert answers == sorted(answers) and answers[0] > 0
    print(f"{len(answers)} requests, each in a child of its own that had the weights")


if __name__ == "__main__":
    main()
