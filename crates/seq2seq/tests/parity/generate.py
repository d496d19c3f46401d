#!/usr/bin/env python3
"""Tiny hierarchical encoder-decoders in PyTorch, float64, without dropout: losses, gradients, training steps, beam search.

  python generate.py [FOLDER]          (this folder by default; needs torch and safetensors)

For each head FOLDER/HEAD.safetensors is a model's state dict, and FOLDER/HEAD.json has:

  sizes       vocabulary, embedding, utterance, context, decoder, components
  contexts    a list a pair: [tokens with <s> and </s>, whether the speaker responds] an utterance, oldest first
  responses   tokens with <s> and </s>
  nll         of every word and </s> of every response, response after response, in nats
  norms       Euclidean norm of the gradient of mean-over-responses(sum of nll), by parameter
  clip        the global norm that gradients are clipped to in the steps
  lr          learning rate of the steps
  losses      summed nll before each of some steps of Adam on this batch
  norm        global norm before clipping in the first step
  after       weights after the steps, flat, by the names of the state dict
  beam        the best responses of every context: [tokens without </s>, summed log-probability] (width 10, 30 words, 5 best; finished
              hypotheses keep their places; <pad>, <s> and <d> never come)
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

PAD, UNK, BOS, EOS, BOD = range(5)
V, E, U, S, H, K = 40, 6, 4, 5, 8, 3
LR, CLIP, STEPS = 1e-2, 0.75, 4


class Model(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.kind = head
        self.embed = nn.Embedding(V, E)
        self.utterance = nn.LSTM(E, U, bidirectional=True)
        self.context = nn.LSTM(2 * U + 2, S)
        self.start = nn.Linear(S, H)
        self.decoder = nn.LSTM(E, H)
        d = H if head == "softmax" else (V * H - K * H) // (V + K * (H + 1))
        self.head = nn.Module()
        self.head.decoder = nn.Linear(d, V)
        if head != "softmax":
            self.head.prior = nn.Linear(H, K, bias=False)
            self.head.latent = nn.Linear(H, K * d)
        for p in self.parameters():
            nn.init.uniform_(p, -0.9, 0.9)
        with torch.no_grad():
            # Weights that make responses of several lengths.
            for p in self.decoder.parameters():
                p.uniform_(-1.5, 1.5)
            self.embed.weight.uniform_(-2, 2)
            self.head.decoder.weight.uniform_(-2, 2)
            self.head.decoder.bias[EOS] = 1.5
            self.embed.weight[PAD] = 0

    def utterance_vector(self, tokens):
        """One sequence at a time: nothing is padded."""
        _, (h, _) = self.utterance(self.embed(torch.tensor(tokens)).unsqueeze(1))
        return torch.cat([h[0, 0], h[1, 0]])

    def encode(self, context):
        x = [torch.cat([self.utterance_vector(t), torch.tensor([1.0 - own, float(own)])]) for t, own in context]
        _, (h, _) = self.context(torch.stack(x).unsqueeze(1))
        return self.start(h[0])  # [1, H]

    def log_probs(self, h):
        if self.kind == "softmax":
            return torch.log_softmax(self.head.decoder(h), -1)
        prior = torch.softmax(self.head.prior(h), -1)
        latent = torch.tanh(self.head.latent(h)).view(*h.shape[:-1], K, -1)
        if self.kind == "moc":
            return torch.log_softmax(self.head.decoder((prior.unsqueeze(-1) * latent).sum(-2)), -1)
        return (prior.unsqueeze(-1) * torch.softmax(self.head.decoder(latent), -1)).sum(-2).log()

    def nll(self, context, response):
        s = self.encode(context).unsqueeze(0)
        out, _ = self.decoder(self.embed(torch.tensor(response[:-1])).unsqueeze(1), (s, s))
        return -self.log_probs(out[:, 0]).gather(1, torch.tensor(response[1:]).unsqueeze(1))[:, 0]

    @torch.no_grad()
    def beam(self, context, width=10, longest=30, best=5):
        """A list of hypotheses in plain Python: (score, words, state or None when finished)."""
        s = self.encode(context).unsqueeze(0)
        beam = [(0.0, [], (s, s))]
        for _ in range(longest):
            if all(state is None for *_, state in beam):
                break
            found = [h for h in beam if h[2] is None]
            for score, words, state in beam:
                if state is None:
                    continue
                last = torch.tensor([[words[-1] if words else BOS]])
                out, after = self.decoder(self.embed(last), state)
                for word, lp in enumerate(self.log_probs(out[0, 0]).tolist()):
                    if word not in (PAD, BOS, BOD):
                        found.append((score + lp, words + [word], None if word == EOS else after))
            beam = sorted(found, key=lambda h: -h[0])[:width]
        return [[[w for w in words if w != EOS], score] for score, words, _ in beam[:best]]


def data(g):
    words = lambda n: torch.randint(UNK, V, (n,), generator=g).tolist()
    utterance = lambda n: [BOS] + [w if w not in (BOS, EOS, BOD) else UNK for w in words(n)] + [EOS]
    begin, a, b, c, d = [BOS, BOD, EOS], utterance(5), utterance(1), utterance(9), utterance(2)
    contexts = [
        [[begin, 0]],
        [[begin, 0], [a, 0]],
        [[begin, 0], [a, 1], [b, 0]],
        [[a, 0], [b, 1], [c, 0]],
        [[b, 0], [c, 1], [c, 1]],
        [[d, 1]],
    ]
    return contexts, [a, b, c, d, utterance(4), utterance(7)]


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    for head in ("softmax", "moc", "mos"):
        contexts, responses = data(torch.Generator().manual_seed(3))
        # The first model whose responses have many lengths: others would test little of the search.
        for seed in range(1000):
            torch.manual_seed(seed)
            model = Model(head)
            beam = [model.beam(c) for c in contexts]
            lengths = [len(words) for found in beam for words, _ in found]
            if len(set(lengths)) > 4 and max(lengths) > 4:
                break
        save_file({k: v.clone() for k, v in model.state_dict().items()}, folder / f"{head}.safetensors")
        case = dict(torch=torch.__version__, sizes=dict(vocabulary=V, embedding=E, utterance=U, context=S, decoder=H, components=K),
                    contexts=contexts, responses=responses, clip=CLIP, lr=LR, beam=beam)
        adam, losses = torch.optim.Adam(model.parameters(), lr=LR), []
        for step in range(STEPS):
            nll = torch.cat([model.nll(c, r) for c, r in zip(contexts, responses)])
            adam.zero_grad()
            (nll.sum() / len(responses)).backward()
            if step == 0:
                case["nll"] = nll.tolist()
                case["norms"] = {k: p.grad.norm().item() for k, p in model.named_parameters()}
            norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            if step == 0:
                case["norm"] = norm.item()
                assert norm > 2 * CLIP
            adam.step()
            losses.append(nll.sum().item())
        case["losses"] = losses
        case["after"] = {k: [round(x, 9) for x in v.flatten().tolist()] for k, v in model.state_dict().items()}
        print(head, [round(x, 3) for x in losses], "lengths", sorted(lengths))
        (folder / f"{head}.json").write_text(json.dumps(case) + "\n")


if __name__ == "__main__":
    main()
