#!/usr/bin/env python3
"""The time of a training step shared by N ranks, measured here and extrapolated.

  mpi_model.py measure --program target/release/highrank --out constants.json    1, 2 and 4 ranks; a program built with --features mpi
  mpi_model.py predict [--constants constants.json]                              8 to 1024 ranks, as a table

A step of batch B takes, with c = ceil(B / N) columns a rank,

  T(N) = own + column * c + sum(all)
  sum(bytes) = blocks * 2 * (N - 1) * latency + 2 * (N - 1) / N * bytes / bandwidth + bytes * adding

`own` is what every rank does whatever its columns: drawing masks, clipping, updating the weights. `column` is the forward and backward pass of
one column. A sum sends a piece to each rank and gets the sums back, in blocks of 64 MiB; `adding` is the host's work with a byte of the
buffer: into it, the additions, and out of it.

`measure` fits own and column to one process with B, B/2 and B/4 columns, and adding (with the bandwidth of shared memory, which is the same
memory) to `reduce_seconds` of 2 ranks; 2 and 4 ranks then check the whole. Every rank has one thread. With more ranks than cores, compute is
multiplied by ranks over cores. Needs Open MPI; python3 alone otherwise.
"""
import argparse, json, math, os, random, statistics, subprocess, tempfile

BLOCK = 64 << 20
SIZES = {  # embedding, LSTMs, components, of the presets
    "small": (128, [256, 128], 5),
    "paper": (280, [960, 960, 620], 15),
    "billion-word": (900, [1024, 1024], 7),
}


def parameters(preset, vocab):
    """Of the Mixture of Softmaxes, whose output layer shares the embedding."""
    d, sizes, k = SIZES[preset]
    lstms, below = 0, d
    for size in sizes:
        lstms += 4 * size * (below + size + 2)
        below = size
    return vocab * (d + 1) + below * k + (below + 1) * k * d + lstms


def work(preset, vocab):
    """Multiplications of a token's forward pass, about: what compute is scaled by."""
    d, sizes, k = SIZES[preset]
    lstms, below = 0, d
    for size in sizes:
        lstms += 4 * size * (below + size)
        below = size
    return below * k * d + k * d * vocab + lstms


def sum_seconds(ranks, size, net):
    if ranks == 1:
        return 0.0
    blocks = math.ceil(size / BLOCK)
    latency = blocks * 2 * (ranks - 1) * net["latency"]
    return latency + 2 * (ranks - 1) / ranks * size / net["bandwidth"] + size * net["adding"]


def step_seconds(ranks, batch, size, compute, net):
    """Of a step, and what of it is the sum of `size` bytes."""
    summing = sum_seconds(ranks, size, net)
    return compute["own"] + compute["column"] * math.ceil(batch / ranks) + summing, summing


def text(folder, vocab, tokens):
    words = random.Random(1)
    os.mkdir(folder)
    every = [f"w{n}" for n in range(vocab)]
    for name, count in ("train", tokens), ("valid", 400), ("test", 400):
        chosen = (every if name == "train" else []) + words.choices(every, k=count)
        with open(os.path.join(folder, name + ".txt"), "w") as file:
            for start in range(0, len(chosen), 20):
                file.write(" ".join(chosen[start : start + 20]) + "\n")


def run(o, folder, ranks, batch, steps):
    """Seconds of a step, of its sums, and of waiting for the slowest rank."""
    out = os.path.join(folder, f"run-{ranks}-{batch}")
    data = os.path.join(folder, f"data-{batch}")
    if not os.path.exists(data):
        text(data, o.vocab, max(0, batch * o.bptt * steps - o.vocab))
    command = [o.program, "train", "--data", data, "--preset", o.preset, "--batch", batch, "--bptt", o.bptt, "--epochs", 1,
               "--max-seq-len-delta", 0, "--log-every", 1, "--no-test", "--device", "flex", "--out", out]
    if ranks > 1:
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", ranks] + command
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "RAYON_NUM_THREADS": "1"}
    quiet = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
    subprocess.run([str(part) for part in command], check=True, capture_output=True, env=os.environ | root | quiet)
    with open(os.path.join(out, "steps.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    # Steps have a drawn length: time by the row, of a step of bptt rows.
    pairs = list(zip(lines, lines[1:]))[1:-1]
    rows = [(after["tokens"] - before["tokens"]) / batch for before, after in pairs]
    seconds = [(after["seconds"] - before["seconds"]) / row * o.bptt for (before, after), row in zip(pairs, rows)]
    of = lambda key: statistics.median(line[key] for line in lines[2:]) if ranks > 1 else 0.0
    return statistics.median(seconds), of("reduce_seconds"), of("wait_seconds")


def measure(o):
    whole, cores = 4 * parameters(o.preset, o.vocab), os.cpu_count()
    with tempfile.TemporaryDirectory() as folder:
        alone = {batch: run(o, folder, 1, batch, o.steps)[0] for batch in (o.batch, o.batch // 2, o.batch // 4)}
        shared = {ranks: run(o, folder, ranks, o.batch, o.steps) for ranks in (2, 4)}
    # Least squares of a line.
    mean_x, mean_y = statistics.mean(alone), statistics.mean(alone.values())
    column = sum((x - mean_x) * (y - mean_y) for x, y in alone.items()) / sum((x - mean_x) ** 2 for x in alone)
    compute = {"own": max(0.0, mean_y - column * mean_x), "column": column}
    net = {"latency": 1e-6, "bandwidth": math.inf, "adding": shared[2][1] / whole}
    print(f"{o.preset}, {o.vocab} words, batch {o.batch}, bptt {o.bptt}: {whole / 4e6:.1f} M parameters, {whole / 1e6:.0f} MB of gradients")
    print(f"one process: {', '.join(f'{batch} columns {1e3 * s:.0f} ms' for batch, s in alone.items())}")
    print(f"own {1e3 * compute['own']:.1f} ms, column {1e3 * column:.2f} ms, adding {1e9 * net['adding']:.2f} ns/B")
    print("| ranks | step, ms | model | sum, ms | model | waiting, ms |\n|---|---|---|---|---|---|")
    for ranks, (step, reduce, wait) in {1: (alone[o.batch], 0.0, 0.0), **shared}.items():
        crowd = max(1, ranks / cores)
        model, sums = (1e3 * crowd * seconds for seconds in step_seconds(ranks, o.batch, whole, compute, net))
        print(f"| {ranks} | {1e3 * step:.0f} | {model:.0f} | {1e3 * reduce:.1f} | {sums:.1f} | {1e3 * wait:.1f} |")
    constants = {"preset": o.preset, "vocab": o.vocab, "bptt": o.bptt, "cores": cores, "adding": net["adding"], **compute}
    if o.out:
        with open(o.out, "w") as file:
            json.dump(constants, file, indent=1)
            file.write("\n")


NETWORKS = {
    "1 Gbit/s, 100 µs": {"latency": 1e-4, "bandwidth": 1.18e8},
    "10 Gbit/s, 30 µs": {"latency": 3e-5, "bandwidth": 1.18e9},
    "100 Gbit/s, 2 µs": {"latency": 2e-6, "bandwidth": 1.18e10},
}
COUNTS = (1, 8, 16, 32, 64, 128, 256, 512, 1024)


def predict(o):
    with open(o.constants) as file:
        measured = json.load(file)
    base = work(measured["preset"], measured["vocab"]) * measured["bptt"]
    own_by = measured["own"] / parameters(measured["preset"], measured["vocab"])
    for preset, vocab, bptt, columns in ("paper", 10_000, 70, 12), ("billion-word", 100_000, 35, 60):
        compute = {"own": own_by * parameters(preset, vocab) / o.faster,
                   "column": measured["column"] * work(preset, vocab) * bptt / base / o.faster}

        def step(ranks, batch, net):
            return step_seconds(ranks, batch, (2 if o.bf16 else 4) * parameters(preset, vocab), compute, net)[0]

        print(f"\n{preset}: {4e-6 * parameters(preset, vocab):.0f} MB of gradients, {columns} columns, one process "
              f"{step(1, columns, {}):.2f} s a step\n")
        for title, batch in ((f"the published batch of {columns}", lambda n: columns),
                             (f"{columns} columns a rank", lambda n: columns * n)):
            print(f"Tokens a second over those of one process with {columns} columns, {title}:\n")
            counts = [n for n in COUNTS if n <= batch(n)]
            print("| network | " + " | ".join(map(str, counts)) + " |\n|---|" + "---|" * len(counts))
            for name, net in NETWORKS.items():
                net = {"adding": measured["adding"], **net}
                gain = [batch(n) / columns * step(1, columns, net) / step(n, batch(n), net) for n in counts]
                print(f"| {name} | " + " | ".join(f"{g:.2f}" if g < 9.95 else f"{g:.0f}" for g in gain) + " |")
            print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    m = commands.add_parser("measure")
    m.add_argument("--program", required=True)
    m.add_argument("--preset", default="small", choices=SIZES)
    m.add_argument("--vocab", type=int, default=10_000)
    m.add_argument("--batch", type=int, default=20)
    m.add_argument("--bptt", type=int, default=35)
    m.add_argument("--steps", type=int, default=24)
    m.add_argument("--out")
    p = commands.add_parser("predict")
    p.add_argument("--constants", default="constants.json")
    p.add_argument("--bf16", action="store_true", help="as with --reduce-precision bf16")
    p.add_argument("--faster", type=float, default=1.0, help="how many times faster than one core here a rank computes")
    o = parser.parse_args()
    {"measure": measure, "predict": predict}[o.command](o)


if __name__ == "__main__":
    main()
