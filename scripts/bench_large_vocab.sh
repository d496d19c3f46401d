#!/usr/bin/env bash
# An output layer over a large vocabulary, one training step: this crate's softmax beside Burn's own layers and PyTorch's, and
# what each option of the loss costs; and an adaptive softmax beside the full one and PyTorch's. Prints one JSON object a run, for `bench_report`:
#
#   scripts/bench_large_vocab.sh PYTHON ROUNDS > benches/results/NAME.jsonl
#   scripts/bench_large_vocab.sh PYTHON ROUNDS options > benches/results/NAME.jsonl    # some of: peers, bf16, adaptive, options
#   cargo run --release --bin bench_report -- benches/results/NAME.jsonl
#
# PYTHON is an interpreter with PyTorch 2.13 or later. Nothing else should run on the machine, which needs 8 GB of free memory:
# about 25 minutes a round on two cores, eight of them for the peers, three for bf16. Environment variables: TOKENS, D and
# VOCAB are the sizes of the step (2048, 1024 and 131072), REPEATS the timed steps of a run (1), BIN a folder that has
# `head_throughput` already.
set -euo pipefail
usage() {
    echo "error: expected PYTHON ROUNDS [peers] [bf16] [adaptive] [options], as in: scripts/bench_large_vocab.sh python3 5" >&2
    exit 2
}
[[ $# -ge 2 && $2 =~ ^[1-9][0-9]*$ ]] || usage
rounds=$2 parts=("${@:3}")
[ ${#parts[@]} -gt 0 ] || parts=(peers bf16 adaptive options)
for part in "${parts[@]}"; do [[ $part =~ ^(peers|bf16|adaptive|options)$ ]] || usage; done
python=$(type -P "$1") || { echo "error: PYTHON is \`$1\`, which is no program" >&2; exit 2; }
# Links stay: an interpreter finds its packages beside the link.
python=$(realpath --no-symlinks "$python")
if [ -n "${BIN:-}" ]; then
    BIN=$(realpath -m "$BIN")
    [ -x "$BIN/head_throughput" ] || { echo "error: BIN is \`$BIN\`, but \`$BIN/head_throughput\` is not there" >&2; exit 2; }
fi
cd "$(dirname "$0")/.."
tokens=${TOKENS:-2048} d=${D:-1024} vocab=${VOCAB:-131072} repeats=${REPEATS:-1}
if [ -z "${BIN:-}" ]; then
    cargo build --release --locked --bin head_throughput >&2
    BIN=${CARGO_TARGET_DIR:-target}/release
fi
what="softmax, $tokens tokens, d $d, V $vocab"

# line WHAT WHO ROUND RESULT
line() { printf '{"what":"%s","who":"%s","round":%s,"result":%s}\n' "$@"; }
# record WHO ROUND COMMAND...
record() {
    local result
    echo "round $2: $1" >&2
    result=$("${@:3}")
    line "$what" "$1" "$2" "$result"
}
softmax=(--head softmax --tokens "$tokens" --d-embedding "$d" --vocab "$vocab")
mos=(--head mos --tokens 840 --d-hidden 620 --d-embedding 280 --vocab 10000 --components 15)
ours() { "$BIN/head_throughput" "${softmax[@]}" --repeats "$repeats" --json "$@"; }
torch() {
    "$python" benches/peers/torch_linear_cross_entropy.py --tokens "$tokens" --d "$d" --vocab "$vocab" --repeats "$repeats" "$@"
}

# Every process is fresh, so that none finds memory that another left; ours runs before each peer.
run_peers() {
    local round=$1
    record highrank "$round" ours
    record "Burn's own layers" "$round" ours --layers burn
    record highrank "$round" ours
    record "PyTorch" "$round" torch --mode plain
    record highrank "$round" ours
    record "PyTorch, chunked" "$round" torch --mode chunked
    record highrank "$round" ours
    record "PyTorch, chunks of 256 tokens" "$round" torch --mode chunked --chunk-tokens 256
}

# Products in bfloat16 with parameters of f32, which PyTorch calls autocast; then parameters and hidden states in bfloat16 too.
run_bf16() {
    local round=$1
    record highrank "$round" ours --precision bf16
    record "PyTorch, bf16" "$round" torch --mode plain --bf16
    record highrank "$round" ours --precision bf16 --dtype bf16
    record "PyTorch, bf16 parameters" "$round" torch --mode plain --dtype bf16
    record highrank "$round" ours --precision bf16
    record "our f32" "$round" ours
}

# Words by Zipf's law, clusters that begin at a 25th and a fifth of the vocabulary.
run_adaptive() {
    local round=$1 what="adaptive softmax, $tokens tokens, d $d, V $vocab"
    record highrank "$round" ours --cutoffs $((vocab / 25)),$((vocab / 5)) --targets zipf
    record "our softmax" "$round" ours --targets zipf
    record highrank "$round" ours --cutoffs $((vocab / 25)),$((vocab / 5)) --targets zipf
    record "PyTorch's adaptive softmax" "$round" \
        "$python" benches/peers/torch_adaptive.py --tokens "$tokens" --d "$d" --vocab "$vocab" --repeats "$repeats"
}

# The option and the plain loss step by step in turn, in one process. What bench_report calls times as fast is the plain loss's
# time over the option's: 0.95 is a cost of 5 %.
options=(ignore smoothing teacher z-loss temperature statistics weights class-weights)
# costs ROUND WHAT REPEATS SIZES...
costs() {
    local round=$1 what=$2 repeats=$3 option result
    for option in "${options[@]}"; do
        result=$("$BIN/head_throughput" "${@:4}" --options "$option" --repeats "$repeats" --json)
        line "$what, $option" highrank "$round" "$result"
        line "$what, $option" "the plain loss" "$round" "$("$python" -c '
import json, sys
run = json.loads(sys.argv[1])
print(json.dumps(dict(median_ms=run["plain_ms"], tokens_per_s=1e3 * run["tokens"] / run["plain_ms"])))
print("round %s: %s, %s: %.3f times the plain loss" % (*sys.argv[2:], run["over_plain"]), file=sys.stderr)' \
            "$result" "$round" "$what" "$option")"
    done
}
run_options() {
    costs "$1" "$what" $((2 * repeats + 1)) "${softmax[@]}"
    costs "$1" "mos, 840 tokens, d 280, V 10000, K 15" $((10 * repeats + 1)) "${mos[@]}"
}

for round in $(seq "$rounds"); do
    for part in "${parts[@]}"; do "run_$part" "$round"; done
done
