#!/usr/bin/env python3
"""Three training steps of tiny AWD-LSTM language models in PyTorch, float64, under dropout masks that are written down.

  python generate.py [FOLDER]          (this folder by default; needs torch and safetensors)

For each model FOLDER/NAME.safetensors is its state dict before the first step, and FOLDER/NAME.json has:

  model   sizes, head, tied or not, the probability of each dropout; lower_components of a direct output connection
  train   lr, bptt, clip, weight_decay, alpha, beta, prior_cv
  steps   one object a step:
            tokens, targets      [T, B], T differs from step to step; the state is carried over
            kept                 what each mask keeps, 1 or 0: words [V], input [B, d], weights [4H, H] and outputs [B, H]
                                 a layer, latent [B, K*d]; what is kept is scaled by 1/(1-p)
            nll, ar, tar         mean over the tokens, and the two regularisers, in nats
            prior_cv             the weighted penalty on the priors
            norm                 global norm of the gradients before clipping
            state                [h, c] a layer after the last time step
            weights              after the update, flat, by the names of the state dict
            average              mean of the iterates since averaging began; null before

One step (Merity et al., arXiv 1708.02182; Yang et al., arXiv 1711.03953): whole words dropped from the embedding, locked dropout on
the embedded input, between the layers, on the last output and on the latent contexts, DropConnect on the recurrent weights;
loss = nll + alpha mean(out^2) + beta mean((raw[t+1] - raw[t])^2), out the last output after dropout and raw before it; clipping to
the norm over all parameters; w -= lr T/bptt (clipped gradient + weight_decay w). Averaging begins with the second step.
"""
import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

V, B, LENGTHS = 9, 2, (4, 2, 3)
DROP = dict(embedding=0.25, input=0.4, hidden=0.3, output=0.45, weight=0.5, latent=0.35)
# The first step is clipped and a later one is not: see the assertion in `trajectory`.
TRAIN = dict(lr=4.0, bptt=3, clip=0.6, weight_decay=1e-2, alpha=2.0, beta=1.0)
# Not of all models: the others have no such term.
PRIOR_CV = {"doc": 0.5}
MODELS = {
    "softmax": dict(head="softmax", d=4, lstm=[5, 4], components=1, tied=True),
    "softmax_untied": dict(head="softmax", d=3, lstm=[4, 5], components=1, tied=False),
    "mos": dict(head="mos", d=3, lstm=[4, 5], components=2, tied=True),
    # One context from the embedding, one from the first LSTM and two from the last (Takase et al., EMNLP 2018).
    "doc": dict(head="doc", d=3, lstm=[4, 5], components=2, lower=[1, 1], tied=True),
}


def connections(m):
    """Tensor, width and components of each layer that contexts come from, lowest first."""
    names = ["weight4embed", "weight4first"]
    below = zip(names, [m["d"]] + m["lstm"], reversed(m["lower"]))
    return [*below, ("latent", m["lstm"][-1], m["components"])]


def mixes(m):
    return m["head"] in ("mos", "doc")


def initial(m, generator):
    uniform = lambda bound, *shape: (torch.rand(*shape, generator=generator) * 2 - 1) * bound
    last, k = m["lstm"][-1], m["components"]
    w = {"encoder.weight": uniform(1.0, V, m["d"]), "decoder.bias": uniform(0.5, V)}
    if not m["tied"]:
        w["decoder.weight"] = uniform(1.0, V, m["d"] if mixes(m) else last)
    for n, (i, h) in enumerate(zip([m["d"]] + m["lstm"], m["lstm"])):
        for name, *shape in (("weight_ih_l0", 4 * h, i), ("weight_hh_l0", 4 * h, h), ("bias_ih_l0", 4 * h), ("bias_hh_l0", 4 * h)):
            w[f"rnns.{n}.{name}"] = uniform(0.7, *shape)
    if m["head"] == "mos":
        w["prior.weight"] = uniform(1.0, k, last)
        w["latent.0.weight"], w["latent.0.bias"] = uniform(1.0, k * m["d"], last), uniform(0.3, k * m["d"])
    if m["head"] == "doc":
        w["prior.weight"] = uniform(1.0, sum(count for *_, count in connections(m)), last)
        for name, width, count in connections(m):
            w[name + ".weight"], w[name + ".bias"] = uniform(1.0, count * m["d"], width), uniform(0.3, count * m["d"])
    return {name: value.requires_grad_() for name, value in w.items()}


def draw(m, generator):
    def kept(p, *shape):
        while True:
            mask = (torch.rand(*shape, generator=generator) >= p).double()
            if 0 < mask.sum() < mask.numel():
                return mask

    h, p = m["lstm"], DROP
    masks = dict(words=kept(p["embedding"], V), input=kept(p["input"], B, m["d"]))
    masks["weights"] = [kept(p["weight"], 4 * size, size) for size in h]
    masks["outputs"] = [kept(p["hidden"], B, size) for size in h[:-1]] + [kept(p["output"], B, h[-1])]
    if m["head"] == "mos":
        masks["latent"] = kept(p["latent"], B, m["components"] * m["d"])
    if m["head"] == "doc":
        # One mask for all components.
        masks["latent"] = kept(p["latent"], B, m["d"]).repeat(1, sum(count for *_, count in connections(m)))
    return masks


def forward(m, w, kept, tokens, targets, state):
    scaled = lambda mask, name: mask / (1 - DROP[name])
    x = F.embedding(tokens, w["encoder.weight"] * scaled(kept["words"], "embedding")[:, None])
    x = x * scaled(kept["input"], "input")
    after, outputs, last = [], [x], len(m["lstm"]) - 1
    for n, size in enumerate(m["lstm"]):
        layer = torch.nn.LSTM(x.shape[-1], size)
        weights = {name: w[f"rnns.{n}.{name}"] for name, _ in layer.named_parameters()}
        weights["weight_hh_l0"] = weights["weight_hh_l0"] * scaled(kept["weights"][n], "weight")
        raw, s = torch.func.functional_call(layer, weights, (x, state[n]))
        after.append(s)
        x = raw * scaled(kept["outputs"][n], "output" if n == last else "hidden")
        outputs.append(x)

    matrix, bias = w.get("decoder.weight", w["encoder.weight"]), w["decoder.bias"]
    if mixes(m):
        if m["head"] == "mos":
            latent = torch.tanh(F.linear(x, w["latent.0.weight"], w["latent.0.bias"]))
        else:
            read = {"weight4embed": outputs[0], "weight4first": outputs[1], "latent": x}
            layer = lambda name: torch.tanh(F.linear(read[name], w[name + ".weight"], w[name + ".bias"]))
            latent = torch.cat([layer(name) for name, *_ in connections(m)], -1)
        latent = (latent * scaled(kept["latent"], "latent")).unflatten(-1, (-1, m["d"]))
        log_prior = F.log_softmax(F.linear(x, w["prior.weight"]), -1)
        log_probs = torch.logsumexp(F.log_softmax(F.linear(latent, matrix, bias), -1) + log_prior[..., None], -2)
    else:
        log_probs = F.log_softmax(F.linear(x, matrix, bias), -1)
    nll = F.nll_loss(log_probs.flatten(0, 1), targets.flatten())
    penalty = torch.zeros(())
    if m["head"] == "doc":
        used = log_prior.exp().flatten(0, 1).sum(0)
        penalty = PRIOR_CV["doc"] * used.var(correction=0) / used.mean() ** 2
    ar = TRAIN["alpha"] * x.pow(2).mean()
    tar = TRAIN["beta"] * (raw[1:] - raw[:-1]).pow(2).mean()
    return nll, ar, tar, penalty, after


def trajectory(m, generator):
    w = initial(m, generator)
    start = {name: value.detach().clone() for name, value in w.items()}
    state = [tuple(torch.zeros(1, B, size) for _ in "hc") for size in m["lstm"]]
    steps, iterates, clipped = [], [], []
    lists = lambda value: [lists(part) for part in value] if isinstance(value, (list, tuple)) else value.int().tolist()
    for number, length in enumerate(LENGTHS):
        text = torch.randint(0, V, (length + 1, B), generator=generator)
        kept = draw(m, generator)
        state = [tuple(part.detach() for part in layer) for layer in state]
        nll, ar, tar, penalty, state = forward(m, w, kept, text[:-1], text[1:], state)
        gradients = torch.autograd.grad(nll + ar + tar + penalty, list(w.values()))
        for value, gradient in zip(w.values(), gradients):
            value.grad = gradient
        norm = torch.nn.utils.clip_grad_norm_(w.values(), TRAIN["clip"])
        clipped.append(bool(norm > TRAIN["clip"]))
        lr = TRAIN["lr"] * length / TRAIN["bptt"]
        with torch.no_grad():
            for value in w.values():
                value -= lr * (value.grad + TRAIN["weight_decay"] * value)
        if number >= 1:
            iterates.append({name: value.detach().clone() for name, value in w.items()})
        average = {name: sum(one[name] for one in iterates) / len(iterates) for name in w} if iterates else None
        flat = lambda values: values and {name: value.detach().flatten().tolist() for name, value in values.items()}
        steps.append(dict(
            tokens=text[:-1].tolist(), targets=text[1:].tolist(),
            kept={name: lists(mask) for name, mask in kept.items()},
            nll=nll.item(), ar=ar.item(), tar=tar.item(), **({"prior_cv": penalty.item()} if m["head"] == "doc" else {}),
            norm=norm.item(),
            state=[[part[0].detach().flatten().tolist() for part in layer] for layer in state],
            weights=flat(w), average=flat(average),
        ))
    assert any(clipped) and not all(clipped), [step["norm"] for step in steps]
    return start, steps


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    torch.set_default_dtype(torch.float64)
    for seed, (name, m) in enumerate(MODELS.items()):
        start, steps = trajectory(m, torch.Generator().manual_seed(seed))
        save_file(start, folder / f"{name}.safetensors")
        model = dict(head=m["head"], vocab=V, d_embedding=m["d"], lstm_sizes=m["lstm"], components=m["components"], tied=m["tied"])
        dropouts = dict(DROP) if mixes(m) else {**DROP, "latent": 0.0}
        model = dict(model, dropouts=dropouts)
        train = dict(TRAIN)
        if m["head"] == "doc":
            model["lower_components"], train["prior_cv"] = m["lower"], PRIOR_CV["doc"]
        whole = dict(model=model, train=train, steps=steps)
        (folder / f"{name}.json").write_text(json.dumps(whole) + "\n")
        print(name, [(step["nll"], step["ar"], step["tar"], step["norm"]) for step in steps])


if __name__ == "__main__":
    main()
