#!/usr/bin/env python3
"""Reference cases of adaptive softmax, in float64.

  python generate.py [FOLDER]          (../data/adaptive by default; needs numpy, torch and safetensors)

Adaptive softmax (Grave, Joulin, Cisse, Grangier, Jegou, ICML 2017), for cutoffs c_1 < .. < c_C and words below V, most frequent
first:

  log P(x | g) = log P_head(x | g)                                        x < c_1
  log P(x | g) = log P_head(c_1 + i | g) + log softmax(W_i P_i g)_(x - c_i)    c_i <= x < c_(i+1), i counted from 0

P_head is a softmax of W g + b over the c_1 + C words of the head cluster, or a Mixture of Softmaxes (Yang et al., ICLR 2018):

  pi = softmax(U g)    h_k = tanh(A_k g + a_k)    P_head = sum_k pi_k softmax(W h_k + b)

P_i is [d_i, H] with d_i = max(1, floor(H / division^(i+1))), W_i is [words, d_i], without a bias. The loss is the weighted mean of
nll = -log P(y).

Values are made twice: by numpy, whose gradients are complex-step derivatives (exact to rounding, no rule of differentiation in them),
and in PyTorch with its autograd: by torch.nn.AdaptiveLogSoftmaxWithLoss where the head cluster is a softmax, and otherwise by its tails
beside a mixture. Both must agree to 1e-12 before a case is written; what is written is PyTorch's. Parameters are laid out as there.
`float32_deviation` says how far the same program is off in float32. Losses with options, and statistics, are those of `options.py`.
"""
import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

sys.path.append(str(Path(__file__).parent.parent))
import complex_steps
import options as with_options

# name, components (0: a softmax), N, V, d, H, cutoffs, division, options
CASES = [
    ("adaptive_basic", 0, 9, 20, 8, 8, [5, 11], 2.0, {}),
    ("adaptive_one_cluster", 0, 6, 11, 6, 6, [4], 4.0, {}),
    ("adaptive_three_clusters", 0, 12, 30, 12, 12, [3, 8, 17], 2.0, {}),
    ("adaptive_narrow", 0, 6, 9, 5, 5, [2, 8], 4.0, {}),
    ("adaptive_shortlist_only", 0, 4, 20, 8, 8, [5, 11], 2.0, dict(targets=[0, 4, 3, 0])),
    ("adaptive_tails_only", 0, 4, 20, 8, 8, [5, 11], 2.0, dict(targets=[11, 19, 12, 15])),
    ("adaptive_n1", 0, 1, 20, 8, 8, [5, 11], 2.0, dict(targets=[7])),
    ("adaptive_extreme", 0, 9, 20, 8, 8, [5, 11], 2.0, dict(scale=12.0)),
    ("adaptive_weighted", 0, 6, 20, 8, 8, [5, 11], 2.0, dict(weights=[0.5, 2.0, 0.0, 1.25, 0.75, 3.0])),
    ("adaptive_mid", 0, 40, 200, 24, 24, [20, 90], 4.0, {}),
    ("adaptive_mos", 3, 9, 20, 5, 8, [5, 11], 2.0, {}),
    ("adaptive_mos_weighted", 2, 6, 20, 5, 8, [5, 11], 2.0, dict(weights=[0.5, 2.0, 0.0, 1.25, 0.75, 3.0])),
]


def widths(h, cutoffs, division):
    return [max(1, int(h // division ** (i + 1))) for i in range(len(cutoffs))]


def inputs(number, k, n, v, d, h, cutoffs, division, options):
    """Parameters and data, as numpy arrays by name."""
    rng = np.random.default_rng(7000 + number)
    normal = lambda *shape: rng.normal(size=shape)
    scale = options.get("scale", 1.0)
    head = cutoffs[0] + len(cutoffs)
    p = {
        "hidden": normal(n, h) * scale,
        "decoder_weight": normal(head, d) * scale,
        "decoder_bias": normal(head) * 0.5,
    }
    if k:
        p["prior_weight"] = normal(k, h) * 0.7
        p["latent_weight"] = normal(k * d, h) / np.sqrt(h)
        p["latent_bias"] = normal(k * d) * 0.3
    for i, (width, first, last) in enumerate(zip(widths(h, cutoffs, division), cutoffs, cutoffs[1:] + [v])):
        p[f"tail_{i}_projection"] = normal(width, h) / np.sqrt(h)
        p[f"tail_{i}_weight"] = normal(last - first, width) * scale
    # Of every cluster some.
    targets = np.array(options.get("targets", [(t * 7 + t * t) % v for t in range(n)]))
    weights = np.array(options["weights"]) if "weights" in options else None
    return p, targets, weights


def log_softmax(z):
    top = z.real.max(axis=-1, keepdims=True)
    return z - top - np.log(np.exp(z - top).sum(axis=-1, keepdims=True))


def by_numpy(p, k, cutoffs, targets, weights):
    """loss, log_probs, nll and the largest logit; parameters may be complex."""
    g, d = p["hidden"], p["decoder_weight"].shape[1]
    if k:
        log_prior = log_softmax(g @ p["prior_weight"].T)
        contexts = np.tanh(g @ p["latent_weight"].T + p["latent_bias"]).reshape(len(g), k, d)
        logits = contexts @ p["decoder_weight"].T + p["decoder_bias"]
        of_component = log_prior[:, :, None] + log_softmax(logits)
        top = of_component.real.max(axis=1, keepdims=True)
        head = (np.log(np.exp(of_component - top).sum(axis=1, keepdims=True)) + top)[:, 0]
    else:
        logits = g @ p["decoder_weight"].T + p["decoder_bias"]
        head = log_softmax(logits)
    parts, largest = [head[:, :cutoffs[0]]], np.abs(logits.real).max()
    for i in range(len(cutoffs)):
        logits = g @ p[f"tail_{i}_projection"].T @ p[f"tail_{i}_weight"].T
        largest = max(largest, np.abs(logits.real).max())
        parts.append(head[:, cutoffs[0] + i:cutoffs[0] + i + 1] + log_softmax(logits))
    log_probs = np.concatenate(parts, axis=1)
    nll = -log_probs[np.arange(len(g)), targets]
    w = np.ones(len(g)) if weights is None else weights
    return (w * nll).sum() / w.sum(), log_probs, nll, largest


def by_torch(p, k, v, cutoffs, division, targets, weights, dtype):
    """The same with gradients, by PyTorch's own module."""
    p = {name: torch.tensor(array, dtype=dtype, requires_grad=True) for name, array in p.items()}
    g = p["hidden"]
    module = torch.nn.AdaptiveLogSoftmaxWithLoss(g.shape[1], v, cutoffs, div_value=division, head_bias=True)
    sizes = widths(g.shape[1], cutoffs, division)
    names = {"head.weight": "decoder_weight", "head.bias": "decoder_bias"}
    for i in range(len(cutoffs)):
        names |= {f"tail.{i}.0.weight": f"tail_{i}_projection", f"tail.{i}.1.weight": f"tail_{i}_weight"}
        # PyTorch's own width may be 0, which no program can train.
        module.tail[i] = torch.nn.Sequential(
            torch.nn.Linear(g.shape[1], sizes[i], bias=False), torch.nn.Linear(sizes[i], p[f"tail_{i}_weight"].shape[0], bias=False))
    call = lambda method: torch.func.functional_call(
        Method(module, method), {f"module.{theirs}": p[ours] for theirs, ours in names.items()}, (g,))
    if k:
        # The module's formula around a head cluster that it does not have.
        d = p["decoder_weight"].shape[1]
        contexts = torch.tanh(F.linear(g, p["latent_weight"], p["latent_bias"])).split(d, 1)
        prior = F.log_softmax(F.linear(g, p["prior_weight"]), 1).split(1, 1)
        mixed = [pi + F.log_softmax(F.linear(h, p["decoder_weight"], p["decoder_bias"]), 1) for pi, h in zip(prior, contexts)]
        head = torch.stack(mixed).logsumexp(0)
        log_probs = torch.empty(len(g), v, dtype=dtype)
        log_probs[:, :cutoffs[0]] = head[:, :cutoffs[0]]
        for i, (first, last) in enumerate(zip(cutoffs, cutoffs[1:] + [v])):
            tail = F.log_softmax(F.linear(F.linear(g, p[f"tail_{i}_projection"]), p[f"tail_{i}_weight"]), 1)
            log_probs[:, first:last] = tail + head[:, cutoffs[0] + i, None]
        nll = -log_probs.gather(1, torch.tensor(targets)[:, None])[:, 0]
    else:
        log_probs = call(lambda module, g: module.log_prob(g))
        nll = -call(lambda module, g: module(g, torch.tensor(targets)).output)
    w = torch.ones(len(g), dtype=dtype) if weights is None else torch.tensor(weights, dtype=dtype)
    loss = (w * nll).sum() / w.sum()
    gradients = torch.autograd.grad(loss, list(p.values()), allow_unused=True)
    gradients = [torch.zeros_like(x) if dx is None else dx for x, dx in zip(p.values(), gradients)]
    return loss.detach(), log_probs.detach(), nll.detach(), dict(zip(p, gradients))


class Method(torch.nn.Module):
    """A method of a module as its forward pass."""

    def __init__(self, module, method):
        super().__init__()
        self.module, self.method = module, method

    def forward(self, *args):
        return self.method(self.module, *args)


def deviation(wide, short):
    return float((short.double() - wide).abs().max() / max(1.0, wide.abs().max()))


def save(folder, name, tensors):
    path = folder / f"{name}.safetensors"
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, path)
    path.chmod(0o644)


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "data/adaptive")
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, (name, k, n, v, d, h, cutoffs, division, options) in enumerate(CASES):
        p, targets, weights = inputs(number, k, n, v, d, h, cutoffs, division, options)
        loss, log_probs, nll, largest = by_numpy(p, k, cutoffs, targets, weights)
        gradients = complex_steps.gradients(lambda moved: by_numpy(moved, k, cutoffs, targets, weights)[0], p)
        torch_of = lambda dtype: by_torch(p, k, v, cutoffs, division, targets, weights, dtype)
        wide, short = torch_of(torch.float64), torch_of(torch.float32)
        pairs = [(loss, wide[0]), (log_probs, wide[1]), (nll, wide[2])]
        pairs += [(gradients[key], wide[3][key]) for key in p]
        for ours, theirs in pairs:
            error = np.abs(ours - theirs.numpy()).max() / max(1.0, np.abs(ours).max())
            assert error < 1e-12, (name, error)
        sums = np.abs(np.exp(log_probs).sum(1) - 1).max()
        assert sums < 1e-12, (name, sums)
        tensors = {"hidden": torch.tensor(p["hidden"]), "targets": torch.tensor(targets, dtype=torch.int64)}
        if weights is not None:
            tensors["token_weights"] = torch.tensor(weights)
        tensors |= {f"param.{key}": torch.tensor(array) for key, array in p.items() if key != "hidden"}
        tensors |= {f"grad.{key}": gradient for key, gradient in wide[3].items()}
        tensors |= {"loss": wide[0].reshape(1), "log_probs": wide[1], "nll": wide[2]}
        save(folder, name, tensors)
        entries.append({
            "name": name,
            "file": f"{name}.safetensors",
            "kind": "head",
            "head": "adaptive_mos" if k else "adaptive",
            "hyperparameters": {"seed": 7000 + number, "n": n, "v": v, "d": d, "h": h, "k": k, "cutoffs": cutoffs, "division": division},
            "max_abs_logit": float(largest),
            "float32_deviation": {
                "log_probs": deviation(wide[1], short[1]),
                "nll": deviation(wide[2], short[2]),
                "loss": deviation(wide[0], short[0]),
                "grad": max(deviation(wide[3][key], short[3][key]) for key in p),
            },
        })
        print(f"{name}: loss {loss:.6f}, largest logit {largest:.1f}")
    for number, settings in enumerate(with_options.CASES):
        tensors, entry = with_options.case(number, inputs, deviation, *settings)
        save(folder, entry["name"], tensors)
        entries.append(entry)
        print(f"{entry['name']}: loss {float(tensors['loss']):.6f}, largest logit {entry['max_abs_logit']:.1f}")
    versions = f"PyTorch {torch.__version__}, numpy {np.__version__}"
    manifest = {"set": "adaptive", "made_by": f"adaptive/generate.py with {versions}", "cases": entries}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


main()
