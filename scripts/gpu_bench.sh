#!/usr/bin/env bash
# The same programs on an NVIDIA GPU beside PyTorch, on a machine that need not have Rust:
#
#   scripts/gpu_bench.sh build DIR                   # here: stripped, compressed programs for DIR
#   scripts/gpu_bench.sh check DIR                   # there: the reference data on the GPU
#   scripts/gpu_bench.sh run DIR PYTHON ROUNDS       # there: one JSON object a run, for `bench_report`; a quarter of an hour a round
#   scripts/gpu_bench.sh run DIR PYTHON ROUNDS steps # the same of one part: heads, steps, lstm or chunks
#
# DIR travels with `benches/peers`, `tests/golden`, `crates/awd-lstm/tests/models` and this script. PYTHON is an interpreter with torch and CUDA. Nothing else
# should run on the GPU. CUDA 13 is what the programs are built for; CUDARC_CUDA_VERSION chooses another.
#
# `build` downloads an LLVM bundle, which turns kernels into PTX. With COMPILER=cpp there is none: kernels become CUDA C++, which
# NVRTC compiles, and a small library stands in for the parts of LLVM that are then never called.
set -euo pipefail
usage() {
    echo "error: expected build DIR, check DIR or run DIR PYTHON ROUNDS [heads] [steps] [lstm] [chunks], as in: scripts/gpu_bench.sh run gpu python3 5" >&2
    exit 2
}
[ $# -ge 2 ] || usage
action=$1 dir=$(realpath -m "$2")
cd "$(dirname "$0")/.."

programs=(head_throughput step_throughput golden)

build() {
    export CUDARC_CUDA_VERSION=${CUDARC_CUDA_VERSION:-13000}
    local features=cuda,flex
    if [ "${COMPILER:-llvm}" = cpp ]; then
        # The build scripts then leave LLVM out, and the linker does not look for functions that are never called.
        export DOCS_RS=1 RUSTFLAGS="${RUSTFLAGS:-} -Clink-arg=-Wl,--unresolved-symbols=ignore-all"
        features=cuda-cpp,flex
    fi
    local options=(--release --locked --no-default-features --features "$features")
    # Both at once: apart they would have other features, and everything below them would be built twice.
    local golden
    golden=$(cargo build "${options[@]}" --workspace --bins --test golden --message-format=json |
        sed -n 's/.*"executable":"\([^"]*golden-[^"]*\)".*/\1/p' | tail -1)
    mkdir -p "$dir"
    : >"$dir/symbols"
    for program in "${programs[@]}"; do
        local from=${CARGO_TARGET_DIR:-target}/release/$program
        [ "$program" = golden ] && from=$golden
        strip -o "$dir/$program" "$from"
        nm --dynamic --undefined-only "$dir/$program" >>"$dir/symbols"
        xz --force --threads=0 "$dir/$program"
    done
    if [ "${COMPILER:-llvm}" = cpp ]; then
        # Every function traps: the loader wants an address for each.
        awk '$2 ~ /^(LLVM|cubecl_)/ { print "void " $2 "(void) { __builtin_trap(); }" }' "$dir/symbols" | sort --unique |
            cc -w -shared -fPIC -x c - -o "$dir/libunused.so"
    fi
    rm "$dir/symbols"
    ls -l "$dir" >&2
}

unpack() {
    for program in "${programs[@]}"; do
        [ -e "$dir/$program" ] || xz --decompress --keep "$dir/$program.xz"
        chmod +x "$dir/$program"
    done
}

# One of the programs, with its arguments.
program() {
    local library=$dir/libunused.so
    [ -e "$library" ] || library=
    LD_PRELOAD=$library "$dir/$1" "${@:2}"
}

# One line, and status 2, where there is no GPU.
probe() {
    export LD_LIBRARY_PATH=${CUDA_PATH:-/usr/local/cuda}/lib64:${LD_LIBRARY_PATH:-}
    program head_throughput --device cuda --tokens 1 --vocab 2 --repeats 1 >/dev/null
}

# record WHAT WHO ROUND COMMAND...
record() {
    local what=$1 who=$2 round=$3
    shift 3
    echo "round $round: $what, $who" >&2
    printf '{"what":"%s","who":"%s","round":%s,"result":%s}\n' "$what" "$who" "$round" "$("$@")"
}
sizes=(--tokens 840 --d-hidden 620 --d-embedding 280 --vocab 10000 --components 15)
peer() { "$python" "benches/peers/torch_$1.py" --device cuda --json "${@:2}"; }
ours() { program "$1" --device cuda --json "${@:2}"; }

# Our run and a peer's at one precision, one right after the other: heads HEAD PRECISION PEER ROUND PEER'S OPTIONS...
heads() {
    local head=$1 precision=$2 who=$3 round=$4
    record "$head" highrank "$round" \
        ours head_throughput --head "$head" "${sizes[@]}" --precision "$precision" --repeats 50
    record "$head" "$who" "$round" peer heads --head "$head" "${sizes[@]}" --repeats 50 "${@:5}"
}
step() {
    local head=$1 precision=$2 who=$3 round=$4
    local what="paper step, $head"
    record "$what" highrank "$round" ours step_throughput --head "$head" --precision "$precision" --repeats 20
    record "$what" "$who" "$round" peer awd_lstm --preset paper --head "$head" --steps 20 "${@:5}"
}
# Our own program with other options, beside itself.
ourselves() {
    local what=$1 who=$2 round=$3 program=$4
    record "$what" highrank "$round" ours "$program" --repeats 20 --head mos
    record "$what" "$who" "$round" ours "$program" --repeats 20 "${@:5}"
}

# What a peer must be told to compute at the same precision.
declare -A same=([full]="" [tf32]=--tf32 [bf16]=--bf16)

# shellcheck disable=SC2086 # no option at all in full precision
run_heads() {
    local round=$1 precision name
    for precision in full tf32 bf16; do
        heads mos "$precision" PyTorch "$round" ${same[$precision]}
        heads mos "$precision" "PyTorch, compiled" "$round" --compile ${same[$precision]}
    done
    heads mos full "PyTorch, log space" "$round" --variant lse
    heads mos full "PyTorch, log space, compiled" "$round" --variant lse --compile
    for name in softmax moc sigsoftmax plif; do
        for precision in full bf16; do
            heads "$name" "$precision" PyTorch "$round" ${same[$precision]}
        done
    done
}
run_chunks() {
    local round=$1 mib
    for mib in 8 16 32 64 128 256; do
        ourselves mos "chunks of $mib MiB" "$round" head_throughput --head mos --memory-budget $((mib << 20))
    done
}
# shellcheck disable=SC2086
run_lstm() {
    local round=$1 precision
    for precision in full tf32; do
        record "three LSTM layers" highrank "$round" \
            ours step_throughput --part lstm --precision "$precision" --repeats 20
        record "three LSTM layers" PyTorch "$round" peer lstm --repeats 20 ${same[$precision]}
    done
}
# shellcheck disable=SC2086
run_steps() {
    local round=$1 precision
    for precision in full tf32 bf16; do
        step mos "$precision" PyTorch "$round" ${same[$precision]}
        step mos "$precision" "PyTorch, compiled" "$round" --compile ${same[$precision]}
        step softmax "$precision" PyTorch "$round" ${same[$precision]}
    done
    ourselves "paper step, mos" "our softmax, as many parameters" "$round" step_throughput --head softmax --equal-size
}

run() {
    local part round
    for part in "${parts[@]}"; do
        for round in $(seq "$rounds"); do "run_$part" "$round"; done
    done
}

case $action in
    build) [ $# -eq 2 ] || usage; build ;;
    check)
        [ $# -eq 2 ] || usage
        unpack
        probe
        HIGHRANK_GOLDEN_DIR=tests/golden/data HIGHRANK_GOLDEN_MODEL_DIR=crates/awd-lstm/tests/models \
            program golden --nocapture --test-threads 1 every_ training
        ;;
    run)
        [ $# -ge 4 ] || usage
        python=$3 rounds=$4 parts=("${@:5}")
        [ ${#parts[@]} -gt 0 ] || parts=(heads steps lstm chunks)
        for part in "${parts[@]}"; do [[ $part =~ ^(heads|steps|lstm|chunks)$ ]] || usage; done
        [[ $rounds =~ ^[1-9][0-9]*$ ]] || usage
        unpack
        probe
        run
        ;;
    *) usage ;;
esac
