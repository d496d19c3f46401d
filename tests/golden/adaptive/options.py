"""Losses of adaptive softmax with options, in float64: label smoothing, teachers, z-loss, temperature, masked words, statistics.

With the log-probabilities of all words by `generate.py`'s formula, at temperature tau (which divides the logits of every part), and with
masked words out of every softmax, each of them written out here over the whole vocabulary, as nothing that the library does:

  q_n      = onehot(y_n), or a teacher's words with their probabilities, and what these leave of 1 in equal shares on the other words
  q~_n     = (1 - eps) q_n + eps/V'                       on the V' words that are not masked
  z_n      = z_head + sum_i Q~_ni LSE(W_i P_i g / tau)^2    Q~_ni = sum of q~_n over the words of cluster i
  z_head   = sum_k pi_k LSE((W h_k + b) / tau)^2
  loss_n   = -sum_v q~_nv log P(v) + lambda z_n

and the loss is the weighted mean or sum over the tokens that count, or without reduction sum_n cotangent_n w_n loss_n.
"""
import numpy as np
import torch
import torch.nn.functional as F

import complex_steps

LOW = -1e30
PLAIN = dict(ignore_index=None, label_smoothing=0.0, z_loss=0.0, temperature=1.0, reduction="mean")
# One of the shortlist, one of the first cluster, and all but one of the second; or a whole cluster.
SOME, CLUSTER = [2, 7, 11, 12, 13, 14, 15, 17, 18, 19], [1, 5, 6, 7, 8, 9, 10, 13]
# name, components, N, V, d, H, cutoffs, division, options, further settings
CASES = [
    ("adaptive_smooth", 0, 9, 20, 8, 8, [5, 11], 2.0, dict(label_smoothing=0.1), {}),
    ("adaptive_smooth_extreme", 0, 9, 20, 8, 8, [5, 11], 2.0, dict(label_smoothing=0.2), dict(scale=8.0)),
    ("adaptive_smooth_vocab_none", 0, 8, 20, 8, 8, [5, 11], 2.0, dict(label_smoothing=0.2, reduction="none"),
     dict(masked=SOME, weights=[0.5, 2.0, 0.0, 1.25, 0.75, 3.0, 1.0, 0.25])),
    ("adaptive_smooth_cluster_gone", 0, 8, 20, 8, 8, [5, 11], 2.0, dict(label_smoothing=0.1), dict(masked=CLUSTER)),
    ("adaptive_teacher", 0, 9, 20, 8, 8, [5, 11], 2.0, {}, dict(teacher=3)),
    ("adaptive_teacher_rest_nan", 0, 9, 20, 8, 8, [5, 11], 2.0, dict(ignore_index=-100, reduction="sum"),
     dict(teacher=4, rest=True, ignored=[1, 6])),
    ("adaptive_teacher_every_word", 0, 5, 9, 5, 5, [2, 8], 4.0, dict(label_smoothing=0.1), dict(teacher=9, rest=True)),
    ("adaptive_z", 0, 9, 20, 8, 8, [5, 11], 2.0, dict(z_loss=0.01), {}),
    ("adaptive_z_smooth_teacher", 0, 9, 20, 8, 8, [5, 11], 2.0, dict(z_loss=0.02, label_smoothing=0.1), dict(teacher=2, rest=True)),
    ("adaptive_mos_tau", 3, 9, 20, 5, 8, [5, 11], 2.0, dict(temperature=1.7, reduction="sum"), {}),
    ("adaptive_mos_ignore_nan", 2, 9, 20, 5, 8, [5, 11], 2.0, dict(ignore_index=3), dict(ignored=[0, 4, 8])),
    ("adaptive_mos_all", 3, 9, 20, 5, 8, [5, 11], 2.0,
     dict(ignore_index=-100, label_smoothing=0.15, z_loss=0.01, temperature=0.8),
     dict(teacher=3, rest=True, ignored=[2], masked=SOME, weights=[1.0, 0.5, 2.0, 0.25, 1.5, 0.0, 3.0, 1.0, 0.75])),
    ("adaptive_three_clusters_all", 0, 12, 30, 12, 12, [3, 8, 17], 2.0,
     dict(label_smoothing=0.05, z_loss=0.005, reduction="none"), dict(teacher=5, rest=True)),
]


class Settings:
    """What a loss is of, besides parameters: all constants."""

    def __init__(self, number, n, v, cutoffs, options, further):
        rng = np.random.default_rng(9900 + number)
        self.options = {**PLAIN, **options}
        self.n, self.v, self.cutoffs = n, v, cutoffs
        self.ends = cutoffs[1:] + [v]
        self.masked = np.isin(np.arange(v), further.get("masked", []))
        left = np.flatnonzero(~self.masked)
        self.targets = np.array([left[(t * 7 + t * t) % len(left)] for t in range(n)])
        self.ignored = further.get("ignored", [])
        # A word that is ignored may be one of the vocabulary.
        index = self.options["ignore_index"]
        self.targets[self.targets == index] = left[-1]
        self.stored_targets = self.targets.copy()
        self.stored_targets[self.ignored] = index if index is not None else 0
        self.given_weights = np.array(further["weights"]) if "weights" in further else None
        self.weights = np.ones(n) if self.given_weights is None else self.given_weights.copy()
        self.weights[self.ignored] = 0.0
        self.counted = self.weights != 0.0
        self.ids = self.probs = None
        if m := further.get("teacher"):
            self.ids = np.stack([rng.permutation(left)[:m] for _ in range(n)])
            self.probs = rng.dirichlet(np.ones(m), n)
            if further.get("rest"):
                self.probs *= rng.uniform(0.3, 0.9, (n, 1))
        self.cotangent = rng.normal(size=n)
        # Rows of the decoders whose words are masked; that of a cluster with all its words.
        whole = [self.masked[a:b].all() for a, b in zip(cutoffs, self.ends)]
        self.masked_head = np.concatenate([self.masked[:cutoffs[0]], whole])
        self.masked_tails = [np.zeros(b - a, bool) if gone else self.masked[a:b] for a, b, gone in zip(cutoffs, self.ends, whole)]

    def dense(self, teacher, smoothing):
        """q~, [N, V]."""
        q = np.zeros((self.n, self.v))
        for t in range(self.n):
            if not teacher:
                q[t, self.targets[t]] = 1.0
                continue
            q[t, self.ids[t]] = self.probs[t]
            others = [w for w in np.flatnonzero(~self.masked) if w not in self.ids[t]]
            if others:
                q[t, others] = (1.0 - self.probs[t].sum()) / len(others)
        eps = self.options["label_smoothing"] if smoothing else 0.0
        return (1.0 - eps) * q + eps * ~self.masked / (~self.masked).sum()

    def shares(self, q):
        """Q~, [N, C]."""
        return np.stack([q[:, a:b].sum(1) for a, b in zip(self.cutoffs, self.ends)], 1)

    def factors(self):
        """The derivative of the loss by the loss of each token."""
        if self.options["reduction"] == "none":
            return self.cotangent * self.weights
        return self.weights / (self.weights.sum() if self.options["reduction"] == "mean" else 1.0)


def log_softmax_and_lse(z):
    top = z.real.max(axis=-1, keepdims=True)
    lse = top + np.log(np.exp(z - top).sum(axis=-1, keepdims=True))
    return z - lse, lse[..., 0]


def parts_by_numpy(p, k, s):
    """Log-probabilities of all words, z of the head cluster and of each tail, and the largest logit; parameters may be complex."""
    g, d, tau = p["hidden"], p["decoder_weight"].shape[1], s.options["temperature"]
    low = lambda masked: np.where(masked, LOW, 0.0)
    if k:
        prior = np.exp(log_softmax_and_lse(g @ p["prior_weight"].T)[0])
        contexts = np.tanh(g @ p["latent_weight"].T + p["latent_bias"]).reshape(len(g), k, d)
    else:
        prior, contexts = np.ones((len(g), 1)), g[:, None]
    logits = (contexts @ p["decoder_weight"].T + p["decoder_bias"]) / tau
    of_component, lse = log_softmax_and_lse(logits + low(s.masked_head))
    joint = of_component + np.log(prior)[:, :, None]
    top = joint.real.max(axis=1, keepdims=True)
    head = (np.log(np.exp(joint - top).sum(axis=1, keepdims=True)) + top)[:, 0]
    z_head, z_tails, largest = (prior * lse * lse).sum(1), [], np.abs(logits.real).max()
    shortlist = s.cutoffs[0]
    parts = [head[:, :shortlist]]
    for i in range(len(s.cutoffs)):
        logits = g @ p[f"tail_{i}_projection"].T @ p[f"tail_{i}_weight"].T / tau
        largest = max(largest, np.abs(logits.real).max())
        tail, lse = log_softmax_and_lse(logits + low(s.masked_tails[i]))
        parts.append(head[:, shortlist + i, None] + tail)
        z_tails.append(lse * lse)
    return np.concatenate(parts, 1), z_head, np.stack(z_tails, 1), largest


def parts_by_torch(p, k, s):
    g, d, tau = p["hidden"], p["decoder_weight"].shape[1], s.options["temperature"]
    low = lambda masked: torch.tensor(np.where(masked, LOW, 0.0), dtype=g.dtype)
    if k:
        log_prior = F.log_softmax(F.linear(g, p["prior_weight"]), 1)
        contexts = torch.tanh(F.linear(g, p["latent_weight"], p["latent_bias"])).split(d, 1)
    else:
        log_prior, contexts = torch.zeros(len(g), 1, dtype=g.dtype), [g]
    logits = [F.linear(h, p["decoder_weight"], p["decoder_bias"]) / tau + low(s.masked_head) for h in contexts]
    head = torch.stack([F.log_softmax(z, 1) + log_prior[:, i, None] for i, z in enumerate(logits)]).logsumexp(0)
    z_head = sum(log_prior[:, i].exp() * z.logsumexp(1) ** 2 for i, z in enumerate(logits))
    shortlist, z_tails = s.cutoffs[0], []
    parts = [head[:, :shortlist]]
    for i in range(len(s.cutoffs)):
        z = F.linear(F.linear(g, p[f"tail_{i}_projection"]), p[f"tail_{i}_weight"]) / tau + low(s.masked_tails[i])
        parts.append(F.log_softmax(z, 1) + head[:, shortlist + i, None])
        z_tails.append(z.logsumexp(1) ** 2)
    return torch.cat(parts, 1), z_head, torch.stack(z_tails, 1)


def of_tokens(log_probs, z_head, z_tails, s, teacher, constant):
    """loss_n and the terms that it is made of, by the operators that numpy and PyTorch have in common."""
    eps, weight = s.options["label_smoothing"], s.options["z_loss"]
    q, goal = constant(s.dense(teacher, False)), constant(s.dense(teacher, True))
    z = lambda q: z_head + (constant(s.shares(q)) * z_tails).sum(1)
    rows = np.arange(s.n)
    terms = {
        "nll": -log_probs[rows, s.targets],
        "z_term": z(s.dense(teacher, True)),
        "smooth_term": -(log_probs * constant(~s.masked / (~s.masked).sum())).sum(1),
    }
    if teacher:
        terms["teacher_term"] = -(log_probs * q).sum(1)
    # Of a loss that is asked for with some of the terms only.
    if teacher or eps:
        terms["z_term_words"] = z(np.eye(s.v)[s.targets])
    if teacher and eps:
        terms |= {"z_term_teacher": z(s.dense(True, False)), "z_term_smooth": z(s.dense(False, True))}
    return -(log_probs * goal).sum(1) + weight * terms["z_term"], terms


def by_numpy(p, k, s):
    log_probs, z_head, z_tails, largest = parts_by_numpy(p, k, s)
    token_loss, terms = of_tokens(log_probs, z_head, z_tails, s, s.ids is not None, lambda x: x)
    loss = (s.factors() * token_loss)[s.counted].sum()
    return loss, log_probs, token_loss, terms, largest


def by_torch(p, k, s, dtype):
    """The same with gradients, by autograd."""
    p = {name: torch.tensor(array, dtype=dtype, requires_grad=True) for name, array in p.items()}
    constant = lambda x: torch.tensor(np.asarray(x, dtype=np.float64), dtype=dtype)
    log_probs, z_head, z_tails = parts_by_torch(p, k, s)
    token_loss, terms = of_tokens(log_probs, z_head, z_tails, s, s.ids is not None, constant)
    counted = torch.tensor(s.counted)
    loss = (constant(s.factors()) * token_loss)[counted].sum()
    gradients = torch.autograd.grad(loss, list(p.values()), allow_unused=True)
    gradients = [torch.zeros_like(x) if dx is None else dx for x, dx in zip(p.values(), gradients)]
    terms = {name: term.detach() for name, term in terms.items()}
    if not s.masked.any() and s.ids is None and dtype == torch.float64:
        theirs = F.cross_entropy(
            log_probs, torch.tensor(s.targets), reduction="none", label_smoothing=s.options["label_smoothing"])
        ours = token_loss - s.options["z_loss"] * terms["z_term"]
        assert float((ours - theirs).detach().abs().max()) < 1e-12 * max(1.0, float(ours.detach().abs().max()))
    return loss.detach(), log_probs.detach(), token_loss.detach(), terms, dict(zip(p, gradients))


def statistics(log_probs, s):
    """Of the distribution of each token, in numpy."""
    seen = log_probs[:, ~s.masked]
    words = np.flatnonzero(~s.masked)
    best = np.sort(seen, 1)
    return {
        "entropy": -(np.exp(seen) * seen).sum(1),
        "argmax": words[seen.argmax(1)],
        "max_log_prob": seen.max(1),
    }, float((best[:, -1] - best[:, -2])[s.counted].min())


def case(number, inputs, deviation, name, k, n, v, d, h, cutoffs, division, options, further):
    """The tensors of a case and its line in the manifest."""
    s = Settings(number, n, v, cutoffs, options, further)
    p, _, _ = inputs(2000 + number, k, n, v, d, h, cutoffs, division, dict(scale=further.get("scale", 1.0)))
    loss, log_probs, token_loss, terms, largest = by_numpy(p, k, s)
    gradients = complex_steps.gradients(lambda moved: by_numpy(moved, k, s)[0], p)
    wide, short = (by_torch(p, k, s, dtype) for dtype in [torch.float64, torch.float32])
    keep, seen = s.counted, ~s.masked
    pairs = [(loss, wide[0]), (log_probs[:, seen], wide[1][:, seen]), (token_loss, wide[2])]
    pairs += [(terms[key], wide[3][key]) for key in terms] + [(gradients[key], wide[4][key]) for key in p]
    for ours, theirs in pairs:
        error = np.abs(ours - theirs.numpy()).max() / max(1.0, np.abs(ours).max())
        assert error < 2e-12, (name, error)
    described, margin = statistics(wide[1].numpy(), s)
    in_short, _ = statistics(short[1].double().numpy(), s)

    hidden = p["hidden"].copy()
    poison = [np.nan, np.inf, -np.inf]
    for i, token in enumerate(s.ignored):
        hidden[token] = poison[i % 3]
    blank = lambda values: torch.where(torch.tensor(keep), values, torch.zeros_like(values))
    tensors = {
        "hidden": torch.tensor(hidden),
        "targets": torch.tensor(s.stored_targets),
        "counted": torch.tensor(keep).long(),
    }
    if s.given_weights is not None:
        tensors["token_weights"] = torch.tensor(s.given_weights)
    if s.ids is not None:
        tensors |= {"teacher_ids": torch.tensor(s.ids), "teacher_probs": torch.tensor(s.probs)}
    if s.options["reduction"] == "none":
        tensors["cotangent"] = torch.tensor(s.cotangent)
    tensors |= {f"param.{key}": torch.tensor(array) for key, array in p.items() if key != "hidden"}
    if s.masked.any():
        flags = {"decoder_weight": s.masked_head, "decoder_bias": s.masked_head}
        flags |= {f"tail_{i}_weight": masked for i, masked in enumerate(s.masked_tails)}
        tensors |= {f"masked.{key}": torch.tensor(masked).long() for key, masked in flags.items()}
    tensors |= {f"grad.{key}": gradient for key, gradient in wide[4].items()}
    tensors |= {"loss": wide[0].reshape(1), "token_loss": blank(wide[2])}
    tensors |= {key: blank(term) for key, term in wide[3].items()}
    tensors |= {key: blank(torch.tensor(values)) for key, values in described.items()}
    tensors["log_probs"] = wide[1].masked_fill(torch.tensor(s.masked), -torch.inf)

    off = {key: deviation(wide[3][key][keep], short[3][key][keep]) for key in terms}
    off |= {key: deviation(torch.tensor(described[key][keep]), torch.tensor(in_short[key][keep])) for key in ["entropy", "max_log_prob"]}
    off |= {
        "log_probs": deviation(wide[1][:, seen], short[1][:, seen]),
        "token_loss": deviation(wide[2][keep], short[2][keep]),
        "loss": deviation(wide[0], short[0]),
        "grad": max(deviation(wide[4][key], short[4][key]) for key in p),
    }
    hyperparameters = {"seed": 9000 + number, "n": n, "v": v, "d": d, "h": h, "k": k, "cutoffs": cutoffs, "division": division}
    hyperparameters |= {"masked_words": np.flatnonzero(s.masked).tolist(), "options": s.options}
    entry = {
        "name": name,
        "file": f"{name}.safetensors",
        "kind": "head_options",
        "head": "adaptive_mos" if k else "adaptive",
        "hyperparameters": hyperparameters,
        "max_abs_logit": float(largest),
        "argmax_margin": margin,
        "float32_deviation": off,
    }
    return tensors, entry
