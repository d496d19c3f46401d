#!/usr/bin/env python3
"""Mixtape heads (Yang, Luong, Salakhutdinov, Le, NeurIPS 2019) in float64: log-probabilities, losses and every gradient.

  python generate.py [FOLDER]          (../data/mixtape by default; needs numpy, torch and safetensors)

For context n and word x, with K = 4 contexts and the gate row r(x) = min(x, S):

  h_k = tanh(H_k g + b_k)              l_{x,j} = v_r . tanh(U_j g) + u_j . g + c_{r,j}      gamma_j = sigmoid(l_j), j = 1, 2, 3
  pi  = (gamma_1 gamma_2, gamma_1 (1 - gamma_2), (1 - gamma_1) gamma_3, (1 - gamma_1)(1 - gamma_3))
  z_x = sum_k pi_{x,k} h_k . w_x + b_x           log P = z - logsumexp z

Values come from the numpy program below, whose gradients are written out by hand. A second program, PyTorch's automatic derivative
of the same formulas, must give the same to 1e-12 of the largest number. Inputs are float32 numbers, so a float32 program starts from
the same ones. A case is a safetensors file, listed in manifest.json with what the second program's float32 values are off by.
"""
import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

CASES = {
    "mixtape_basic": dict(n=6, v=11, d=5, h=7, g=3, s=4),
    "mixtape_weighted": dict(n=7, v=9, d=4, h=6, g=2, s=5, weights="random"),
    "mixtape_masked": dict(n=9, v=8, d=3, h=5, g=4, s=3, weights="mask"),
    "mixtape_all_shared": dict(n=5, v=7, d=4, h=6, g=3, s=0),
    "mixtape_none_shared": dict(n=5, v=7, d=4, h=6, g=3, s=6),
    "mixtape_one_frequent": dict(n=4, v=6, d=3, h=4, g=2, s=1),
    "mixtape_n1": dict(n=1, v=5, d=3, h=4, g=2, s=2),
    "mixtape_tiny": dict(n=1, v=2, d=1, h=1, g=1, s=1),
    "mixtape_saturated": dict(n=6, v=9, d=4, h=5, g=3, s=5, gates=60.0),
    "mixtape_extreme": dict(n=6, v=9, d=4, h=5, g=3, s=4, weight=150.0),
    "mixtape_mid": dict(n=40, v=300, d=12, h=16, g=8, s=70),
}


def draw(spec, seed):
    rng = np.random.default_rng(seed)
    n, v, d, h, g, s = (spec[key] for key in "nvdhgs")
    normal = lambda scale, *shape: (rng.standard_normal(shape) * scale).astype(np.float32).astype(np.float64)
    hidden = normal(1.0, n, h)
    params = {
        "decoder_weight": normal(spec.get("weight", 1.0), v, d),
        "decoder_bias": normal(0.5, v),
        "latent_weight": normal(0.6, 4 * d, h),
        "latent_bias": normal(0.3, 4 * d),
        "gate_weight": normal(0.8, 3 * g, h),
        "gate_base": normal(0.7, 3, h),
        "gate_vectors": normal(spec.get("gates", 1.2), s + 1, g),
        "gate_bias": normal(0.5, s + 1, 3),
    }
    targets = rng.integers(0, v, n)
    weights = None
    if spec.get("weights") == "random":
        weights = rng.uniform(0.1, 2.0, n).astype(np.float32).astype(np.float64)
    if spec.get("weights") == "mask":
        weights = (np.arange(n) % 3 != 1).astype(np.float64)
    return hidden, params, targets.astype(np.int64), weights


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


def by_numpy(spec, hidden, p, targets, weights):
    n, v, d, h, g, s = (spec[key] for key in "nvdhgs")
    w, row = p["decoder_weight"], np.minimum(np.arange(v), s)
    latent = np.tanh(hidden @ p["latent_weight"].T + p["latent_bias"]).reshape(n, 4, d)
    features = np.tanh(hidden @ p["gate_weight"].T).reshape(n, 3, g)
    base = hidden @ p["gate_base"].T
    logit = np.einsum("njg,xg->nxj", features, p["gate_vectors"][row]) + base[:, None, :] + p["gate_bias"][row][None]
    o, c = sigmoid(logit), sigmoid(-logit)
    pi = np.stack([o[..., 0] * o[..., 1], o[..., 0] * c[..., 1], c[..., 0] * o[..., 2], c[..., 0] * c[..., 2]], -1)
    products = np.einsum("nkd,xd->nxk", latent, w)
    z = (pi * products).sum(-1) + p["decoder_bias"]
    top = z.max(1, keepdims=True)
    log_probs = z - top - np.log(np.exp(z - top).sum(1, keepdims=True))
    nll = -log_probs[np.arange(n), targets]
    share = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    loss = (share * nll).sum()

    dz = np.exp(log_probs)
    dz[np.arange(n), targets] -= 1.0
    dz *= share[:, None]
    d_pi, d_products = dz[..., None] * products, dz[..., None] * pi
    p1, p2, p3, p4 = (d_pi[..., k] for k in range(4))
    d_gamma = np.stack([
        o[..., 1] * p1 + c[..., 1] * p2 - o[..., 2] * p3 - c[..., 2] * p4,
        o[..., 0] * (p1 - p2),
        c[..., 0] * (p3 - p4),
    ], -1)
    d_logit = d_gamma * o * c
    d_latent = np.einsum("nxk,xd->nkd", d_products, w) * (1 - latent**2)
    d_features = np.einsum("nxj,xg->njg", d_logit, p["gate_vectors"][row]) * (1 - features**2)
    d_base = d_logit.sum(1)
    d_vectors, d_gate_bias = np.zeros((s + 1, g)), np.zeros((s + 1, 3))
    np.add.at(d_vectors, row, np.einsum("nxj,njg->xg", d_logit, features))
    np.add.at(d_gate_bias, row, d_logit.sum(0))
    d_latent, d_features = d_latent.reshape(n, 4 * d), d_features.reshape(n, 3 * g)
    return {
        "log_probs": log_probs, "nll": nll, "loss": np.array([loss]), "mid.logits": z,
        "grad.decoder_weight": np.einsum("nxk,nkd->xd", d_products, latent),
        "grad.decoder_bias": dz.sum(0),
        "grad.latent_weight": d_latent.T @ hidden,
        "grad.latent_bias": d_latent.sum(0),
        "grad.gate_weight": d_features.T @ hidden,
        "grad.gate_base": d_base.T @ hidden,
        "grad.gate_vectors": d_vectors,
        "grad.gate_bias": d_gate_bias,
        "grad.hidden": d_latent @ p["latent_weight"] + d_features @ p["gate_weight"] + d_base @ p["gate_base"],
    }


def by_torch(spec, hidden, p, targets, weights, dtype):
    n, v, d, g, s = (spec[key] for key in "nvdgs")
    leaf = lambda x: torch.tensor(x, dtype=dtype, requires_grad=True)
    hidden, p = leaf(hidden), {name: leaf(value) for name, value in p.items()}
    latent = torch.tanh(hidden @ p["latent_weight"].T + p["latent_bias"]).view(n, 4, d)
    features = torch.tanh(hidden @ p["gate_weight"].T).view(n, 3, g)
    rows = torch.arange(v).clamp(max=s)
    logit = features @ p["gate_vectors"][rows].T + (hidden @ p["gate_base"].T).unsqueeze(-1) + p["gate_bias"][rows].T
    first, second, third = torch.sigmoid(logit).unbind(1)
    pi = torch.stack([first * second, first * (1 - second), (1 - first) * third, (1 - first) * (1 - third)], 1)
    z = (pi * (latent @ p["decoder_weight"].T)).sum(1) + p["decoder_bias"]
    log_probs = torch.log_softmax(z, -1)
    nll = -log_probs.gather(1, torch.tensor(targets).unsqueeze(1)).squeeze(1)
    weights = torch.ones(n, dtype=dtype) if weights is None else torch.tensor(weights, dtype=dtype)
    loss = (nll * weights).sum() / weights.sum()
    names = ["hidden", *p]
    grads = torch.autograd.grad(loss, [hidden, *p.values()])
    made = {"log_probs": log_probs, "nll": nll, "loss": loss.reshape(1)}
    made |= {f"grad.{name}": grad for name, grad in zip(names, grads)}
    return {name: value.detach().double().numpy() for name, value in made.items()}


def off_by(got, want):
    """The largest difference over the larger of 1 and the largest number."""
    return float(np.abs(got - want).max() / max(1.0, np.abs(want).max()))


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for seed, (name, spec) in enumerate(CASES.items(), 4000):
        hidden, params, targets, weights = draw(spec, seed)
        values = by_numpy(spec, hidden, params, targets, weights)
        second = by_torch(spec, hidden, params, targets, weights, torch.float64)
        for quantity, value in second.items():
            error = off_by(value, values[quantity])
            assert error < 1e-12, f"{name}: {quantity} differs by {error}"
        single = by_torch(spec, hidden, params, targets, weights, torch.float32)
        deviation = {key: off_by(single[key], values[key]) for key in ("log_probs", "nll", "loss")}
        deviation["grad"] = max(off_by(single[key], values[key]) for key in single if key.startswith("grad."))
        tensors = {"hidden": hidden, "targets": targets, **values}
        tensors |= {f"param.{key}": value for key, value in params.items()}
        if weights is not None:
            tensors["token_weights"] = weights
        save_file({key: np.ascontiguousarray(value) for key, value in tensors.items()}, folder / f"{name}.safetensors")
        entries.append({
            "name": name, "file": f"{name}.safetensors", "kind": "head", "head": "mixtape",
            "hyperparameters": {"seed": seed, **spec},
            "max_abs_logit": float(np.abs(values["mid.logits"]).max()),
            "float32_deviation": {key: float(f"{value:.2g}") for key, value in deviation.items()},
        })
    (folder / "manifest.json").write_text(json.dumps({"set": "mixtape", "cases": entries}, indent=1) + "\n")


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent / "data" / "mixtape")
