#!/usr/bin/env bash
# The same programs on an NVIDIA GPU beside PyTorch, on a machine that need not have Rust:
#
#   scripts/gpu_bench.sh build DIR                   # here: stripped, compressed programs for DIR
#   scripts/gpu_bench.sh check DIR                   # there: the reference data on the GPU
#   scripts/gpu_bench.sh run DIR PYTHON ROUNDS       # there: one JSON object a run, for `bench_report`
#
# DIR travels with `benches/peers`, `tests/golden` and this script. PYTHON is an interpreter with torch and CUDA. Nothing else
# should run on the GPU. CUDA 13 is what the programs are built for; CUDARC_CUDA_VERSION chooses another.
set -euo pipefail
usage() {
    echo "error: expected build DIR, check DIR or run DIR PYTHON ROUNDS, as in: scripts/gpu_bench.sh run gpu python3 5" >&2
    exit 2
}
[ $# -ge 2 ] || usage
action=$1 dir=$(realpath -m "$2")
cd "$(dirname "$0")/.."

programs=(head_throughput step_throughput ptb_mos golden)

build() {
    export CUDARC_CUDA_VERSION=${CUDARC_CUDA_VERSION:-13000}
    cargo build --release --locked --features cuda --examples
    local golden
    golden=$(cargo test --release --locked --features cuda --test golden --no-run --message-format=json |
        sed -n 's/.*"executable":"\([^"]*golden-[^"]*\)".*/\1/p' | tail -1)
    mkdir -p "$dir"
    for program in "${programs[@]}"; do
        local from=target/release/examples/$program
        [ "$program" = golden ] && from=$golden
        strip -o "$dir/$program" "$from"
        xz --force --threads=0 "$dir/$program"
    done
    ls -l "$dir" >&2
}

unpack() {
    for program in "${programs[@]}"; do
        [ -e "$dir/$program" ] || xz --decompress --keep "$dir/$program.xz"
        chmod +x "$dir/$program"
    done
}

# record WHAT WHO ROUND COMMAND...
record() {
    local what=$1 who=$2 round=$3
    shift 3
    echo "round $round: $what, $who" >&2
    printf '{"what":"%s","who":"%s","round":%s,"result":%s}\n' "$what" "$who" "$round" "$("$@")"
}
sizes=(--tokens 840 --d-hidden 620 --d-embedding 280 --vocab 10000 --components 15)

# One of our runs and a peer's, one right after the other: beside_torch HEAD PEER ROUND PEER'S OPTIONS...
beside_torch() {
    local head=$1 who=$2 round=$3
    record "$head" highrank "$round" "$dir/head_throughput" --device cuda --head "$head" "${sizes[@]}" --repeats 50 --json
    record "$head" "$who" "$round" \
        "$python" benches/peers/torch_heads.py --device cuda --head "$head" "${sizes[@]}" --repeats 50 --json "${@:4}"
}
step() {
    local head=$1 who=$2 round=$3
    local what="paper step, $head"
    record "$what" highrank "$round" "$dir/step_throughput" --device cuda --head "$head" --repeats 20 --json
    record "$what" "$who" "$round" \
        "$python" benches/peers/torch_awd_lstm.py --device cuda --preset paper --head "$head" --steps 20 --json "${@:4}"
}
# Our own program with other options, beside itself.
ourselves() {
    local what=$1 who=$2 round=$3 program=$4
    record "$what" highrank "$round" "$dir/$program" --device cuda --repeats 20 --json --head mos
    record "$what" "$who" "$round" "$dir/$program" --device cuda --repeats 20 --json "${@:5}"
}

run() {
    for round in $(seq "$rounds"); do
        for name in mos softmax moc sigsoftmax plif; do
            head "$name" "PyTorch" "$round"
            head "$name" "PyTorch, compiled" "$round" --compile
            head "$name" "PyTorch, bf16" "$round" --bf16
        done
        beside_torch mos "PyTorch, log space" "$round" --variant lse
        beside_torch mos "PyTorch, log space, compiled" "$round" --variant lse --compile
        for mib in 8 32 64 128 256; do
            ourselves mos "chunks of $mib MiB" "$round" head_throughput --head mos --memory-budget $((mib << 20))
        done
        record "three LSTM layers" highrank "$round" "$dir/step_throughput" --device cuda --part lstm --repeats 20 --json
        record "three LSTM layers" PyTorch "$round" "$python" benches/peers/torch_lstm.py --device cuda --repeats 20 --json
        for name in mos softmax; do
            step "$name" PyTorch "$round"
            step "$name" "PyTorch, compiled" "$round" --compile
        done
        ourselves "paper step, mos" "our softmax, as many parameters" "$round" step_throughput --head softmax --equal-size
    done
}

case $action in
    build) [ $# -eq 2 ] || usage; build ;;
    check)
        [ $# -eq 2 ] || usage
        unpack
        HIGHRANK_GOLDEN_DIR=tests/golden/data HIGHRANK_GOLDEN_MODEL_DIR=tests/golden/models \
            "$dir/golden" --nocapture --test-threads 1 every_
        ;;
    run) [ $# -eq 4 ] || usage; python=$3 rounds=$4; unpack; run ;;
    *) usage ;;
esac
