#!/usr/bin/env python3
"""Reference cases of direct output connection, of contexts without a tanh alone, and of the penalty on the variation of a mixture's priors, in float64.

  python generate.py [FOLDER]          (../data/doc by default; needs numpy, torch and safetensors)

Direct output connection (Takase, Suzuki, Nagata, EMNLP 2018), for layers l = 1 .. L with outputs g_l and K_l components each:

  hidden  g  = [g_1, .., g_L]                               side by side
  prior   pi = softmax(U g_L)                               over all K components, those of the first layer first
  context h_k = a(A_k g_l(k) + a_k)                         a(u) = tanh u, or by the case's activation
                                                            linear: u, residual: tanh u + the first d features of g_l(k)
  P(x)    = sum_k pi_k softmax(f(W h_k + b))_x
  nll     = -log P(y)

The other heads with priors (Yang et al., ICLR 2018; Ganea et al., ICML 2019) are the same with one layer; moc has one softmax over
W (sum_k pi_k h_k) + b. f is the identity, or a PLIF with pieces of width w = 2T/P on [-T, T], slopes s = softplus(v), linear outside:

  i = clamp(floor((z + T) / w), 0, P - 1)      f(z) = b0 - s_0 T + w sum_{j<i} s_j + s_i (z - (-T + i w))

The loss of a case is the weighted mean or sum of the nll of the tokens that count, and with s_k = sum_n w_n pi_nk over them:

  cv2  = variance(s_1 .. s_K) / mean(s_1 .. s_K)^2           the variance divides by K
  mean = sum_n w_n nll_n / sum_n w_n + lambda cv2            sum = sum_n w_n nll_n + lambda cv2 sum_n w_n

Values are made twice: by numpy, whose gradients are complex-step derivatives (exact to rounding, no rule of differentiation in them),
and by a program in PyTorch with its autograd, which goes component by component. Both must agree to 1e-12 before a case is written; what is written is
PyTorch's. `float32_deviation` says how far the same program is off in float32.
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

T = 3.0
# name, head, layers [(H, K)], N, V, d, pieces of a PLIF, options
PLAIN = dict(kind="head")
LINEAR = dict(kind="head", activation="linear")
RESIDUAL = dict(kind="head", activation="residual")
CASES = [
    ("doc_basic", "doc", [(6, 2), (7, 3)], 6, 11, 5, 0, PLAIN),
    ("doc_three_layers", "doc", [(4, 1), (6, 2), (5, 3)], 5, 9, 4, 0, PLAIN),
    ("doc_one_layer", "doc", [(7, 3)], 4, 8, 5, 0, PLAIN),
    ("doc_k1_each", "doc", [(3, 1), (2, 1)], 3, 5, 2, 0, PLAIN),
    ("doc_n1", "doc", [(6, 2), (7, 2)], 1, 7, 5, 0, PLAIN),
    ("doc_extreme", "doc", [(6, 2), (7, 3)], 6, 11, 5, 0, dict(kind="head", scale=30.0)),
    ("doc_weighted", "doc", [(6, 2), (7, 3)], 6, 11, 5, 0, dict(kind="head", weights=[0.5, 2.0, 0.0, 1.25, 0.75, 3.0])),
    ("doc_plif", "doc_plif", [(6, 2), (7, 3)], 6, 11, 5, 8, PLAIN),
    ("doc_mid", "doc", [(20, 3), (24, 5)], 33, 70, 16, 0, PLAIN),
    ("doc_cv", "doc", [(6, 2), (7, 3)], 6, 11, 5, 0, dict(kind="prior_cv", prior_cv=0.5)),
    ("doc_cv_ignore", "doc", [(6, 2), (7, 3)], 7, 11, 5, 0, dict(kind="prior_cv", prior_cv=0.75, ignored=[1, 4], poison=True)),
    ("mos_cv", "mos", [(7, 3)], 6, 11, 5, 0, dict(kind="prior_cv", prior_cv=0.5)),
    ("mos_cv_weights", "mos", [(7, 3)], 6, 11, 5, 0,
     dict(kind="prior_cv", prior_cv=0.25, weights=[0.5, 2.0, 0.0, 1.25, 0.75, 3.0])),
    ("mos_cv_all", "mos", [(7, 4)], 7, 11, 5, 0,
     dict(kind="prior_cv", prior_cv=2.0, weights=[0.5, 2.0, 0.0, 1.25, 0.75, 3.0, 1.0], ignored=[0, 5], poison=True, reduction="sum")),
    ("mos_cv_one_component", "mos", [(7, 1)], 4, 8, 5, 0, dict(kind="prior_cv", prior_cv=0.5)),
    ("moc_cv", "moc", [(7, 3)], 6, 11, 5, 0, dict(kind="prior_cv", prior_cv=0.5)),
    ("moc_cv_sum", "moc", [(7, 3)], 6, 11, 5, 0, dict(kind="prior_cv", prior_cv=0.5, ignored=[2], reduction="sum")),
    ("mos_plif_cv", "mos_plif", [(7, 3)], 6, 11, 5, 8, dict(kind="prior_cv", prior_cv=0.5, weights=[1.0, 0.5, 2.0, 0.0, 1.0, 1.0])),
    ("mos_linear", "mos", [(7, 3)], 6, 11, 5, 0, LINEAR),
    ("mos_linear_narrow", "mos", [(4, 3)], 6, 11, 9, 0, LINEAR),
    ("mos_linear_weighted", "mos", [(7, 3)], 6, 11, 5, 0, dict(LINEAR, weights=[0.5, 2.0, 0.0, 1.25, 0.75, 3.0])),
    ("mos_plif_linear", "mos_plif", [(7, 3)], 6, 11, 5, 8, LINEAR),
    ("moc_linear", "moc", [(7, 3)], 6, 11, 5, 0, LINEAR),
    ("doc_linear", "doc", [(6, 2), (7, 3)], 6, 11, 5, 0, LINEAR),
    ("mos_residual", "mos", [(7, 3)], 6, 11, 5, 0, RESIDUAL),
    ("mos_residual_square", "mos", [(5, 3)], 6, 11, 5, 0, RESIDUAL),
    ("mos_residual_extreme", "mos", [(7, 3)], 6, 11, 5, 0, dict(RESIDUAL, scale=30.0)),
    ("mos_residual_mid", "mos", [(24, 5)], 33, 70, 16, 0, RESIDUAL),
    ("moc_residual", "moc", [(7, 3)], 6, 11, 5, 0, RESIDUAL),
    ("doc_residual", "doc", [(6, 2), (7, 3)], 6, 11, 5, 0, RESIDUAL),
    ("doc_plif_residual", "doc_plif", [(5, 2), (8, 2)], 6, 11, 5, 8, RESIDUAL),
]
IGNORED = -100


def inputs(number, head, layers, n, v, d, pieces, options):
    """Parameters and data, as numpy arrays by name."""
    rng = np.random.default_rng(9000 + number)
    normal = lambda *shape: rng.normal(size=shape)
    scale = options.get("scale", 1.0)
    k = sum(count for _, count in layers)
    p = {
        "hidden": normal(n, sum(h for h, _ in layers)) * scale,
        "decoder_weight": normal(v, d) * scale,
        "decoder_bias": normal(v) * 0.5,
        "prior_weight": normal(k, layers[-1][0]) * 0.7,
    }
    for l, (h, count) in enumerate(layers):
        tail = f"_{l}" if head.startswith("doc") else ""
        p["latent_weight" + tail] = normal(count * d, h) / np.sqrt(h)
        p["latent_bias" + tail] = normal(count * d) * 0.3
    if pieces:
        p["plif_v"], p["plif_b0"] = normal(pieces), normal(1)
    targets = rng.integers(0, v, n)
    weights = np.array(options["weights"]) if "weights" in options else None
    counted = np.ones(n, dtype=np.int64)
    for token in options.get("ignored", []):
        targets[token], counted[token] = IGNORED, 0
    if weights is not None:
        counted[weights == 0.0] = 0
    return p, targets, weights, counted


def log_sum_exp(z, axis):
    top = z.real.max(axis=axis, keepdims=True)
    return (np.log(np.exp(z - top).sum(axis=axis, keepdims=True)) + top).squeeze(axis)


def log_softmax(z):
    return z - np.expand_dims(log_sum_exp(z, z.ndim - 1), -1)


def by_numpy(p, head, layers, targets, weights, counted, options):
    """loss, cv2, log_probs, nll, log_prior and logits of the tokens that count; parameters may be complex."""
    kept = np.flatnonzero(counted)
    plif = lambda z: z
    if "plif_v" in p:
        pieces = p["plif_v"].size
        width = 2 * T / pieces
        slopes = np.log(1 + np.exp(p["plif_v"]))
        before = width * (np.cumsum(slopes) - slopes)

        def plif(z):
            i = np.clip(np.floor((z.real + T) / width), 0, pieces - 1).astype(np.int64)
            return p["plif_b0"] - slopes[0] * T + before[i] + slopes[i] * (z - (-T + i * width))

    g = p["hidden"][kept]
    d = p["decoder_weight"].shape[1]
    log_prior = log_softmax(g[:, g.shape[1] - layers[-1][0]:] @ p["prior_weight"].T)
    activation, parts, column = options.get("activation", "tanh"), [], 0
    for l, (h, _) in enumerate(layers):
        tail = f"_{l}" if head.startswith("doc") else ""
        output = g[:, column:column + h]
        made = output @ p["latent_weight" + tail].T + p["latent_bias" + tail]
        if activation != "linear":
            made = np.tanh(made)
        if activation == "residual":
            made = made + np.tile(output[:, :d], made.shape[1] // d)
        parts.append(made)
        column += h
    contexts = np.concatenate(parts, 1).reshape(len(kept), -1, d)
    if head == "moc":
        contexts = (np.exp(log_prior)[:, :, None] * contexts).sum(1)
    logits = contexts @ p["decoder_weight"].T + p["decoder_bias"]
    log_probs = log_softmax(plif(logits))
    if head != "moc":
        log_probs = log_sum_exp(log_prior[:, :, None] + log_probs, 1)
    nll = -log_probs[np.arange(len(kept)), targets[kept]]
    w = np.ones(len(kept)) if weights is None else weights[kept]
    sums = (w[:, None] * np.exp(log_prior)).sum(0)
    mean = sums.sum() / len(sums)
    cv2 = ((sums - mean) ** 2).sum() / len(sums) / mean**2
    total, penalty = (w * nll).sum(), options.get("prior_cv", 0.0) * cv2
    loss = total + penalty * w.sum() if options.get("reduction") == "sum" else total / w.sum() + penalty
    return loss, cv2, log_probs, nll, log_prior, logits


def by_torch(arrays, dtype, head, layers, targets, weights, counted, options):
    """The same and the gradients, component by component."""
    p = {name: torch.tensor(array, dtype=dtype, requires_grad=True) for name, array in arrays.items()}
    kept = torch.from_numpy(counted).bool()
    words = torch.from_numpy(targets)[kept]
    w = torch.ones(len(targets), dtype=dtype) if weights is None else torch.tensor(weights, dtype=dtype)
    w = w[kept]

    def bend(z):
        if "plif_v" not in p:
            return z
        # The area under the slopes from the left end on.
        slopes = F.softplus(p["plif_v"])
        width = 2 * T / len(slopes)
        f = p["plif_b0"] - slopes[0] * T + slopes[0] * (z + T).clamp(max=0) + slopes[-1] * (z - T).clamp(min=0)
        for i, slope in enumerate(slopes):
            f = f + slope * (z - (i * width - T)).clamp(0, width)
        return f

    outputs = p["hidden"][kept].split([h for h, _ in layers], 1)
    log_prior = F.log_softmax(F.linear(outputs[-1], p["prior_weight"]), 1)
    prior = log_prior.exp()
    d = p["decoder_weight"].shape[1]
    contexts = []
    for l, (output, (_, count)) in enumerate(zip(outputs, layers)):
        tail = f"_{l}" if head.startswith("doc") else ""
        matrices, biases = p["latent_weight" + tail].split(d), p["latent_bias" + tail].split(d)
        assert len(matrices) == count
        activate = {
            "tanh": torch.tanh,
            "linear": lambda u: u,
            "residual": lambda u, output=output: output.narrow(1, 0, d) + torch.tanh(u),
        }[options.get("activation", "tanh")]
        contexts += [activate(F.linear(output, matrix, bias)) for matrix, bias in zip(matrices, biases)]
    if head == "moc":
        mixed = sum(prior[:, k:k + 1] * context for k, context in enumerate(contexts))
        logits = F.linear(mixed, p["decoder_weight"], p["decoder_bias"])
        log_probs = F.log_softmax(bend(logits), 1)
    else:
        logits = torch.stack([F.linear(context, p["decoder_weight"], p["decoder_bias"]) for context in contexts], 1)
        terms = [log_prior[:, k:k + 1] + F.log_softmax(bend(logits[:, k]), 1) for k in range(len(contexts))]
        log_probs = torch.stack(terms).logsumexp(0)
    nll = F.nll_loss(log_probs, words, reduction="none")
    use = w @ prior
    cv2 = use.var(correction=0) / use.mean().square()
    loss = nll @ w if options.get("reduction") == "sum" else (nll @ w) / w.sum()
    times = w.sum() if options.get("reduction") == "sum" else 1.0
    loss = loss + options.get("prior_cv", 0.0) * times * cv2
    gradients = torch.autograd.grad(loss, list(p.values()))
    values = [v.detach().double().numpy() for v in (loss, cv2, log_probs, nll, log_prior, logits)]
    return values, {name: gradient.double().numpy() for name, gradient in zip(p, gradients)}


def off(got, want):
    """Largest difference over max(1, largest value)."""
    return float(np.max(np.abs(got - want), initial=0.0) / max(1.0, np.max(np.abs(want), initial=0.0)))


def all_off(got, want):
    (values, gradients), (wanted, wanted_gradients) = got, want
    names = ("loss", "cv2", "log_probs", "nll", "mid.log_prior", "mid.logits")
    deviations = {name: off(g, w) for name, g, w in zip(names, values, wanted)}
    scale = max(1.0, max(np.max(np.abs(g)) for g in wanted_gradients.values()))
    deviations["grad"] = max(float(np.max(np.abs(gradients[n] - wanted_gradients[n]))) for n in gradients) / scale
    return deviations


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "data" / "doc"
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for number, (name, head, layers, n, v, d, pieces, options) in enumerate(CASES):
        p, targets, weights, counted = inputs(number, head, layers, n, v, d, pieces, options)
        rest = (head, layers, targets, weights, counted, options)
        reference = by_torch(p, torch.float64, *rest)
        short = by_torch(p, torch.float32, *rest)
        # Thousands of complex steps tell no more than hundreds.
        gradients = reference[1] if name.endswith("_mid") else complex_steps.gradients(lambda moved: by_numpy(moved, *rest)[0], p)
        checked = all_off((by_numpy(p, *rest), gradients), reference)
        assert max(checked.values()) < 1e-12, (name, checked)
        (loss, cv2, log_probs, nll, log_prior, logits), gradients = reference
        kept = np.flatnonzero(counted)
        tensors = {f"param.{key}": array for key, array in p.items() if key != "hidden"}
        hidden = p["hidden"].copy()
        if options.get("poison"):
            hidden[counted == 0] = np.nan
        tensors |= dict(hidden=hidden, targets=targets, loss=np.atleast_1d(loss))
        if weights is not None:
            tensors["token_weights"] = weights
        if options["kind"] == "head":
            # Every token has a nll here, whatever it weighs.
            every = by_numpy(p, head, layers, targets, None, np.ones(n, dtype=np.int64), options)
            tensors |= {"log_probs": every[2], "nll": every[3]}
        else:
            tensors |= dict(counted=counted, cv2=np.atleast_1d(cv2), nll=nll)
        tensors |= {f"grad.{key}": gradient for key, gradient in gradients.items()}
        path = folder / f"{name}.safetensors"
        save_file({key: torch.tensor(np.ascontiguousarray(array)) for key, array in tensors.items()}, path)
        path.chmod(0o644)
        entry = dict(name=name, file=f"{name}.safetensors", kind=options["kind"], head=head)
        sizes = dict(n=n, v=v, d=d, layers=layers)
        if "activation" in options:
            sizes["activation"] = options["activation"]
        if pieces:
            sizes["plif"] = dict(pieces=pieces, t=T)
        if options["kind"] != "head":
            sizes["options"] = dict(
                ignore_index=IGNORED if "ignored" in options else None,
                prior_cv=options["prior_cv"],
                reduction=options.get("reduction", "mean"),
            )
        entry |= dict(hyperparameters=sizes, max_abs_logit=float(np.abs(logits).max()))
        if pieces:
            at = (logits + T) / (2 * T / pieces)
            inside = (at > -0.5) & (at < pieces + 0.5)
            entry["knot_margin"] = float(np.abs(at - np.round(at))[inside].min())
        entry["float32_deviation"] = {key: float(f"{value:.1e}") for key, value in all_off(short, reference).items()}
        entry["checks"] = dict(numpy={key: float(f"{value:.1e}") for key, value in checked.items()}, kept=len(kept))
        listed.append(entry)
        print(name, float(loss), float(cv2), max(checked.values()), entry["float32_deviation"]["grad"])
    (folder / "manifest.json").write_text(json.dumps(dict(set="doc", cases=listed), indent=1) + "\n")


if __name__ == "__main__":
    main()
