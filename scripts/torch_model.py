#!/usr/bin/env python3
"""An AWD-LSTM Mixture of Softmaxes in plain PyTorch, beside which imported weights are checked.

  torch_model.py make --out model.safetensors --vocab 10000          random weights, sizes of the Penn Treebank model
  torch_model.py convert model.safetensors model.pt                  .safetensors, .pt, or .legacy.pt (before PyTorch 1.6)
  torch_model.py whole --out whole.pt                                a pickled module instead of a state dict
  torch_model.py perplexity --weights model.safetensors --data DIR   of test.txt

Names and shapes are those of the authors' programs; the vocabulary is numbered by first appearance over train.txt,
valid.txt and test.txt. Needs torch, numpy and safetensors.
"""
import argparse, json, math, os, time
from collections import OrderedDict
import torch
from safetensors.torch import load_file, save_file


def load(path):
    if not path.endswith(".safetensors"):
        return torch.load(path, map_location="cpu", weights_only=True)
    state = load_file(path)
    if torch.equal(state["encoder.weight"], state["decoder.weight"]):
        state["decoder.weight"] = state["encoder.weight"]
    return state


def save(state, path):
    if path.endswith(".safetensors"):
        save_file({k: v.contiguous().clone() for k, v in state.items()}, path, metadata={"format": "pt"})
    else:
        torch.save(OrderedDict(state), path, _use_new_zipfile_serialization=not path.endswith(".legacy.pt"))


def make(o):
    g = torch.Generator().manual_seed(o.seed)
    u = lambda *s, r: (torch.rand(*s, generator=g) * 2 - 1) * r
    sizes = [o.emsize] + [o.nhid] * (o.layers - 1) + [o.nhidlast]
    state = OrderedDict()
    # Wide enough that every layer matters to the perplexity: with the usual small start all words are equally likely.
    state["encoder.weight"] = u(o.vocab, o.emsize, r=0.5)
    for l, (i, h) in enumerate(zip(sizes, sizes[1:])):
        m, raw = (f"rnns.{l}.", "") if o.plain else (f"rnns.{l}.module.", "_raw")
        state[m + "weight_ih_l0"] = u(4 * h, i, r=2 / math.sqrt(h))
        state[m + "weight_hh_l0" + raw] = u(4 * h, h, r=2 / math.sqrt(h))
        state[m + "bias_ih_l0"] = u(4 * h, r=0.3)
        state[m + "bias_hh_l0"] = u(4 * h, r=0.3)
    if o.components > 0:
        state["prior.weight"] = u(o.components, o.nhidlast, r=0.3)
        state["latent.0.weight"] = u(o.components * o.emsize, o.nhidlast, r=0.1)
        state["latent.0.bias"] = u(o.components * o.emsize, r=0.3)
    state["decoder.weight"] = state["encoder.weight"]
    state["decoder.bias"] = u(o.vocab, r=0.5)
    save(state, o.out)


def whole(o):
    model = torch.nn.Sequential(OrderedDict(encoder=torch.nn.Embedding(3, 2), decoder=torch.nn.Linear(2, 3)))
    torch.save(model, o.out, _use_new_zipfile_serialization=not o.out.endswith(".legacy.pt"))


def read_ids(data, split):
    ids, stream = {}, []
    for name in ("train", "valid", "test"):
        with open(os.path.join(data, name + ".txt"), encoding="utf-8") as lines:
            for line in lines:
                for word in line.split() + ["<eos>"]:
                    i = ids.setdefault(word, len(ids))
                    if name == split:
                        stream.append(i)
    return torch.tensor(stream), len(ids)


@torch.no_grad()
def perplexity(o):
    started = time.time()
    state = {k.replace(".module.", ".").replace("_raw", ""): v.float() for k, v in load(o.weights).items()}
    stream, vocab = read_ids(o.data, o.split)
    assert vocab == len(state["encoder.weight"]), (vocab, state["encoder.weight"].shape)
    stream = stream[: o.tokens] if o.tokens else stream
    rows = len(stream) // o.columns
    columns = stream[: rows * o.columns].view(o.columns, rows).t().contiguous()
    layers = []
    while f"rnns.{len(layers)}.weight_ih_l0" in state:
        m = f"rnns.{len(layers)}."
        wide, narrow = state[m + "weight_ih_l0"].shape
        lstm = torch.nn.LSTM(narrow, wide // 4)
        lstm.load_state_dict({n: state[m + n] for n in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")})
        layers.append(lstm)
    hidden, total, count = [None] * len(layers), 0.0, 0
    for start in range(0, rows - 1, o.bptt):
        length = min(o.bptt, rows - 1 - start)
        x = state["encoder.weight"][columns[start : start + length]]
        for l, lstm in enumerate(layers):
            x, hidden[l] = lstm(x, hidden[l])
        x = x.reshape(length * o.columns, -1)
        targets = columns[start + 1 : start + 1 + length].reshape(-1)
        d = state["decoder.weight"].shape[1]
        if "prior.weight" in state:
            prior = torch.log_softmax((x @ state["prior.weight"].t()).double(), 1)
            latent = torch.tanh(x @ state["latent.0.weight"].t() + state["latent.0.bias"]).view(-1, d)
            logits = latent @ state["decoder.weight"].t() + state["decoder.bias"]
            k = prior.shape[1]
            picked = logits.gather(1, targets.repeat_interleave(k)[:, None]).squeeze(1)
            component = (picked - torch.logsumexp(logits, 1)).double().view(-1, k)
            nll = -torch.logsumexp(prior + component, 1)
        else:
            logits = (x @ state["decoder.weight"].t() + state["decoder.bias"]).double()
            nll = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        total += nll.sum().item()
        count += len(targets)
    print(json.dumps(dict(split=o.split, tokens=count, perplexity=math.exp(total / count), seconds=time.time() - started)))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = a.add_subparsers(required=True)
    c = commands.add_parser("make")
    c.add_argument("--out", required=True)
    for name, value in dict(seed=28, vocab=10000, emsize=280, nhid=960, nhidlast=620, layers=3, components=15).items():
        c.add_argument("--" + name, type=int, default=value, help=f"default {value}; 0 components: softmax" if name == "components" else f"default {value}")
    c.add_argument("--plain", action="store_true", help="names of a model without weight dropout")
    c.set_defaults(run=make)
    c = commands.add_parser("convert")
    c.add_argument("source")
    c.add_argument("target")
    c.set_defaults(run=lambda o: save(load(o.source), o.target))
    c = commands.add_parser("whole")
    c.add_argument("--out", required=True)
    c.set_defaults(run=whole)
    c = commands.add_parser("perplexity")
    c.add_argument("--weights", required=True)
    c.add_argument("--data", required=True)
    c.add_argument("--split", default="test", choices=("train", "valid", "test"))
    c.add_argument("--columns", type=int, default=1)
    c.add_argument("--tokens", type=int, default=0, help="only that many tokens from the start")
    c.add_argument("--bptt", type=int, default=70)
    c.set_defaults(run=perplexity)
    o = a.parse_args()
    o.run(o)


if __name__ == "__main__":
    main()
