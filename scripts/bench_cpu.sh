#!/usr/bin/env bash
# Runs our programs and the same formulas in PyTorch in turn and prints one JSON object a run, for `bench_report`:
#
#   scripts/bench_cpu.sh PYTHON ROUNDS > benches/results/NAME.jsonl
#   scripts/bench_cpu.sh PYTHON ROUNDS heads predictions > benches/results/NAME.jsonl    # some of the parts
#   cargo run --release --bin bench_report -- benches/results/NAME.jsonl --plot benches/results/NAME.svg --force
#
# PYTHON is an interpreter with torch and numpy. Nothing else should run on the machine. Parts, with minutes a round on two cores:
#
#   products     the square product of each precision beside PyTorch's, bf16 beside f32                                    0.3
#   heads        a training step of each head beside PyTorch's, f32 and bf16                                               1.5
#   compiled     the same of softmax and MoS beside PyTorch's under `torch.compile`, which needs a C++ compiler               3
#   precisions   a training step in bf16 beside our own in f32                                                             0.4
#   maps         a training step of each head with one softmax beside that of our softmax                                  0.7
#   connections  a direct output connection beside a mixture of as many components, and a penalty on the priors            0.3
#   mixtape      a Mixtape beside a mixture of softmaxes                                                                   0.3
#   small        a mixture of small contexts beside PyTorch's                                                              0.2
#   predictions  nll, log-probs, top-k, sample and decode beside PyTorch's                                                 2.5
#   policies     log-probabilities of given words and entropies, with gradients, beside PyTorch's                          4.0
#   lstm         three LSTM layers beside PyTorch's                                                                        0.3
#   steps        the whole `paper` step beside PyTorch's, in bf16 beside f32, MoS beside softmax                           1.5
#   threads      a training step of each head on all threads beside one                                                    1.5
#   before       all of ours beside older programs, which BASE says where to find; only if asked for                         2.5
#
# Environment variables: BIN is a folder that has `head_throughput` and `step_throughput` already, BASE one with those of another
# version, THREADS how many are compared with one (2). F32=1 leaves out bf16, for processors without units for it, where one of
# PyTorch's products takes minutes.
set -euo pipefail
all=(products heads compiled precisions maps connections mixtape small predictions policies lstm steps threads)
usage() {
    echo "error: expected PYTHON ROUNDS [PART]..., parts of ${all[*]} before, as in: scripts/bench_cpu.sh python3 7 heads" >&2
    exit 2
}
[[ $# -ge 2 && $2 =~ ^[1-9][0-9]*$ ]] || usage
rounds=$2 parts=("${@:3}")
[ ${#parts[@]} -gt 0 ] || parts=("${all[@]}")
for part in "${parts[@]}"; do
    [[ " ${all[*]} before " == *" $part "* ]] || usage
    if [ "$part" = before ] && [ ! -x "${BASE:-}/head_throughput" ]; then
        echo "error: the part \`before\` needs BASE, a folder with older programs" >&2
        exit 2
    fi
done
python=$(type -P "$1") || { echo "error: PYTHON is \`$1\`, which is no program" >&2; exit 2; }
# Links stay: an interpreter finds its packages beside the link.
python=$(realpath --no-symlinks "$python")
for folder in BIN BASE; do [ -z "${!folder:-}" ] || printf -v "$folder" %s "$(realpath -m "${!folder}")"; done
for program in head_throughput step_throughput; do
    [ -z "${BIN:-}" ] || [ -x "$BIN/$program" ] || { echo "error: BIN is \`$BIN\`, but \`$BIN/$program\` is not there" >&2; exit 2; }
done
cd "$(dirname "$0")/.."
if [ -z "${BIN:-}" ]; then
    cargo build --release --locked --bin head_throughput --bin step_throughput >&2
    BIN=${CARGO_TARGET_DIR:-target}/release
fi
threads=${THREADS:-2}

# record WHAT WHO ROUND COMMAND...
record() {
    local result
    if [ "${F32:-}" = 1 ] && [[ " ${*:2} " =~ bf16|our\ f32 ]]; then return; fi
    echo "round $3: $1, $2" >&2
    result=$("${@:4}")
    printf '{"what":"%s","who":"%s","round":%s,"result":%s}\n' "${@:1:3}" "$result"
}
sizes=(--tokens 840 --d-hidden 620 --d-embedding 280 --vocab 10000 --components 15)
small=(--tokens 840 --d-hidden 128 --d-embedding 10 --vocab 10000 --components 10)
# All heads, and the timed steps of those that take a second; the others make 15, and PyTorch's 7.
heads=(softmax moc mos sigsoftmax gss plif mos-plif soft-cap monotonic-net)
declare -A slow=([mos]=3 [doc]=3 [mos-plif]=3)
# What PyTorch must be told to round alike, and how it is called then.
declare -A same=([full]="" [bf16]=--bf16) torch=([full]=PyTorch [bf16]="PyTorch, bf16")

# ours HEAD OPTIONS...
ours() { "$BIN/head_throughput" --head "$1" "${sizes[@]}" --repeats "${slow[$1]:-15}" --json "${@:2}"; }
peer() { "$python" "benches/peers/torch_$1.py" --json "${@:2}"; }
# The square product that a program measured beside its steps, as a run of its own.
product() {
    "$@" --tokens 1 --d-embedding 8 --vocab 16 --repeats 15 | "$python" -c '
import json, sys
run = json.load(sys.stdin)
rate = run["ceiling_gflops"]
print(json.dumps(dict(median_ms=2 * 2048**3 / rate / 1e6, gflops=rate, precision=run.get("precision"))))'
}

# shellcheck disable=SC2086 # no option at all in full precision
run_products() {
    local round=$1 precision
    # shellcheck disable=SC2317 # called by name
    our_product() { product "$BIN/head_throughput" --head softmax --json --precision "$1"; }
    for precision in full bf16; do
        record "product, 2048³" highrank "$round" our_product "$precision"
        record "product, 2048³" "${torch[$precision]}" "$round" product peer heads --head softmax ${same[$precision]}
    done
    record "product, 2048³" highrank "$round" our_product bf16
    record "product, 2048³" "our f32" "$round" our_product full
}
# shellcheck disable=SC2086
run_heads() {
    local round=$1 precision head
    record "step, mos" highrank "$round" ours mos
    record "step, mos" "PyTorch, original formula" "$round" peer heads --head mos "${sizes[@]}" --repeats 3
    for head in mos softmax moc sigsoftmax plif; do
        for precision in full bf16; do
            record "step, $head" highrank "$round" ours "$head" --precision "$precision"
            record "step, $head" "${torch[$precision]}" "$round" \
                peer heads --head "$head" --variant lse "${sizes[@]}" --repeats "${slow[$head]:-7}" ${same[$precision]}
        done
    done
}
# shellcheck disable=SC2086
run_compiled() {
    local round=$1 precision head
    for head in mos softmax; do
        for precision in full bf16; do
            record "step, $head" highrank "$round" ours "$head" --precision "$precision"
            record "step, $head" "${torch[$precision]}, compiled" "$round" \
                peer heads --head "$head" --variant lse --compile "${sizes[@]}" --repeats "${slow[$head]:-7}" ${same[$precision]}
        done
    done
}
run_precisions() {
    local round=$1 head
    for head in mos softmax; do
        record "step, $head" highrank "$round" ours "$head" --precision bf16
        record "step, $head" "our f32" "$round" ours "$head"
        record "step, $head" highrank "$round" ours "$head" --precision bf16 --dtype bf16
        record "step, $head" "our f32" "$round" ours "$head"
    done
}
run_maps() {
    local round=$1 precision head
    for precision in full bf16; do
        for head in sigsoftmax gss soft-cap monotonic-net plif moc mixtape; do
            record "step, $head" highrank "$round" ours "$head" --precision "$precision"
            record "step, $head" "our softmax" "$round" ours softmax --precision "$precision"
        done
    done
}
run_mixtape() {
    local round=$1 precision
    for precision in full bf16; do
        record "step, mixtape" highrank "$round" ours mixtape --precision "$precision"
        record "step, mixtape" "our mos" "$round" ours mos --precision "$precision"
    done
}
run_connections() {
    local round=$1 precision
    local mixture=("${sizes[@]/#15/20}")
    for precision in full bf16; do
        record "step, doc, K 15 + 5" highrank "$round" ours doc --precision "$precision"
        record "step, doc, K 15 + 5" "our mos, K 20" "$round" \
            "$BIN/head_throughput" --head mos "${mixture[@]}" --precision "$precision" --repeats "${slow[mos]}" --json
        record "step, mos with a penalty on the priors" highrank "$round" ours mos --precision "$precision" --options prior-cv
        record "step, mos with a penalty on the priors" "our mos" "$round" ours mos --precision "$precision"
    done
}
# shellcheck disable=SC2086
run_small() {
    local round=$1 precision
    for precision in full bf16; do
        record "step, mos, K 10, d 10, H 128" highrank "$round" \
            "$BIN/head_throughput" --head mos "${small[@]}" --precision "$precision" --repeats 7 --json
        record "step, mos, K 10, d 10, H 128" "${torch[$precision]}" "$round" \
            peer heads --head mos --variant lse "${small[@]}" --repeats 3 ${same[$precision]}
    done
}
# shellcheck disable=SC2086
run_predictions() {
    local round=$1 mode head precision
    for head in mos softmax; do
        for mode in nll log-probs top-k sample decode; do
            for precision in full bf16; do
                record "$mode, $head" highrank "$round" ours "$head" --mode "$mode" --precision "$precision"
                record "$mode, $head" "${torch[$precision]}" "$round" \
                    peer inference --head "$head" --mode "$mode" "${sizes[@]}" --repeats "${slow[$head]:-7}" ${same[$precision]}
            done
        done
    done
}
# shellcheck disable=SC2086
run_policies() {
    local round=$1 head precision asked entropy large=(--tokens 1024 --d-embedding 512 --vocab 131072)
    for precision in full bf16; do
        for asked in log-probs policy; do
            entropy=""
            if [ "$asked" = policy ]; then entropy=--entropy; fi
            for head in mos softmax; do
                record "$asked step, $head" highrank "$round" ours "$head" --options "$asked" --precision "$precision"
                record "$asked step, $head" "${torch[$precision]}" "$round" \
                    peer log_probs --head "$head" $entropy "${sizes[@]}" --repeats 3 ${same[$precision]}
            done
            record "$asked step, softmax, V 131,072" highrank "$round" \
                "$BIN/head_throughput" --head softmax "${large[@]}" --options "$asked" --precision "$precision" --repeats 3 --json
            record "$asked step, softmax, V 131,072" "${torch[$precision]}" "$round" \
                peer log_probs --head softmax $entropy "${large[@]}" --repeats 3 ${same[$precision]}
        done
    done
}
# shellcheck disable=SC2086
run_lstm() {
    local round=$1 precision
    for precision in full bf16; do
        record "three LSTM layers" highrank "$round" \
            "$BIN/step_throughput" --part lstm --precision "$precision" --repeats 5 --json
        record "three LSTM layers" "${torch[$precision]}" "$round" peer lstm --repeats 5 ${same[$precision]}
    done
}
# shellcheck disable=SC2086
run_steps() {
    local round=$1 precision head
    # shellcheck disable=SC2317 # called by name
    paper() { "$BIN/step_throughput" --head "$1" --repeats "${slow[$1]:-5}" --json "${@:2}"; }
    for head in mos softmax; do
        for precision in full bf16; do
            record "paper step, $head" highrank "$round" paper "$head" --precision "$precision"
            record "paper step, $head" "${torch[$precision]}" "$round" \
                peer awd_lstm --preset paper --head "$head" --steps "${slow[$head]:-5}" ${same[$precision]}
        done
        record "paper step, $head" highrank "$round" paper "$head" --precision bf16
        record "paper step, $head" "our f32" "$round" paper "$head"
    done
    record "paper step, mos" highrank "$round" paper mos
    record "paper step, mos" "our softmax, as many parameters" "$round" paper softmax --equal-size
}
run_threads() {
    local round=$1 precision head
    for precision in full bf16; do
        for head in "${heads[@]}"; do
            record "step, $head, $threads threads" highrank "$round" ours "$head" --precision "$precision" --threads "$threads"
            record "step, $head, $threads threads" "one thread" "$round" ours "$head" --precision "$precision" --threads 1
        done
    done
}
# Only options that older programs know too.
run_before() {
    local round=$1 head mode precision
    # older NAME WHAT OPTIONS...
    older() {
        record "$2" highrank "$round" "$BIN/$1" --json "${@:3}"
        record "$2" before "$round" "$BASE/$1" --json "${@:3}"
    }
    for head in softmax moc mos sigsoftmax gss plif mos-plif; do
        for precision in full bf16; do
            older head_throughput "step, $head" --head "$head" "${sizes[@]}" --repeats "${slow[$head]:-15}" --precision "$precision"
        done
    done
    older head_throughput "step, mos, K 10, d 10, H 128" --head mos "${small[@]}"
    for head in mos softmax; do
        for mode in nll log-probs top-k sample decode; do
            older head_throughput "$mode, $head" --head "$head" --mode "$mode" "${sizes[@]}" --repeats "${slow[$head]:-15}"
        done
        for precision in full bf16; do
            older step_throughput "paper step, $head" --head "$head" --repeats "${slow[$head]:-5}" --precision "$precision"
        done
    done
    for precision in full bf16; do
        older step_throughput "three LSTM layers" --part lstm --repeats 5 --precision "$precision"
    done
}

for round in $(seq "$rounds"); do
    for part in "${parts[@]}"; do "run_$part" "$round"; done
done
