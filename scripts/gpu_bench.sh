#!/usr/bin/env bash
# The same programs on an NVIDIA GPU beside PyTorch, on a machine that need not have Rust:
#
#   scripts/gpu_bench.sh build DIR                   # here: programs for DIR, in one archive of some 45 MB
#   scripts/gpu_bench.sh check DIR                   # there: the reference data on the GPU
#   scripts/gpu_bench.sh run DIR PYTHON ROUNDS       # there: one JSON object a run, for `bench_report`; a quarter of an hour a round
#   scripts/gpu_bench.sh run DIR PYTHON ROUNDS steps # the same of one part: lstm, steps, heads, chunks or policies
#   scripts/gpu_bench.sh run DIR PYTHON 1 kernels    # a `paper` step kernel by kernel, by Nsight Compute: a table on standard output
#   scripts/gpu_bench.sh train DIR OPTIONS...        # `highrank train` with these options, such as: TEXT --preset small --precision bf16
#
# A run that takes longer than LIMIT seconds (240) is given up and named. What it compiled and tuned is kept in target/environment
# for the next: bring that folder along where there is a GPU for minutes only.
#
# DIR travels with `benches/peers`, `tests/golden`, `crates/awd-lstm/tests/models` and this script, in their places. PYTHON is an interpreter with torch and CUDA. Nothing else
# should run on the GPU. CUDA 13 is what the programs are built for; CUDARC_CUDA_VERSION chooses another.
#
# `build` downloads an LLVM bundle, which turns kernels into PTX. With COMPILER=cpp there is none: kernels become CUDA C++, which
# NVRTC compiles, and a small library stands in for the parts of LLVM that are then never called.
set -euo pipefail
usage() {
    echo "error: expected build DIR, check DIR, train DIR OPTIONS... or run DIR PYTHON ROUNDS [lstm] [steps] [heads] [chunks] [policies] [kernels], as in: scripts/gpu_bench.sh run gpu python3 5" >&2
    exit 2
}
[ $# -ge 2 ] || usage
action=$1 dir=$(realpath -m "$2")
if [ "$action" = run ] && [ -n "${3:-}" ]; then
    python=$(type -P "$3") || { echo "error: PYTHON is \`$3\`, which is no program" >&2; exit 2; }
    # Links stay: an interpreter finds its packages beside the link.
    python=$(realpath --no-symlinks "$python")
fi
cd "$(dirname "$0")/.."

programs=(step_throughput head_throughput highrank golden)
limit=${LIMIT:-0}

build() {
    export CUDARC_CUDA_VERSION=${CUDARC_CUDA_VERSION:-13000}
    local features=cuda,flex
    if [ "${COMPILER:-llvm}" = cpp ]; then
        # The build scripts then leave LLVM out, and the linker does not look for functions that are never called.
        export DOCS_RS=1 RUSTFLAGS="${RUSTFLAGS:-} -Clink-arg=-Wl,--unresolved-symbols=ignore-all"
        features=cuda,cuda-cpp,flex
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
    done
    # Programs have most of their code in common, which one dictionary over all of them finds.
    tar --create --directory "$dir" --remove-files "${programs[@]}" | xz --lzma2=preset=4,dict=512MiB --threads=1 >"$dir/programs.tar.xz"
    if [ "${COMPILER:-llvm}" = cpp ]; then
        # Every function traps: the loader wants an address for each.
        awk '$2 ~ /^(LLVM|cubecl_)/ { print "void " $2 "(void) { __builtin_trap(); }" }' "$dir/symbols" | sort --unique |
            cc -w -shared -fPIC -x c - -o "$dir/libunused.so"
    fi
    rm "$dir/symbols"
    ls -l "$dir" >&2
}

unpack() {
    [ -e "$dir/golden" ] || [ -f "$dir/programs.tar.xz" ] || {
        echo "error: \`$dir/programs.tar.xz\` does not exist: scripts/gpu_bench.sh build makes it" >&2
        exit 2
    }
    [ -f "$dir/programs.tar.xz" ] || return 0
    # Of which archive they are.
    local archive
    archive=$(cksum <"$dir/programs.tar.xz")
    [ ! -e "$dir/golden" ] || [ "$(cat "$dir/unpacked" 2>/dev/null)" != "$archive" ] || return 0
    xz --decompress --stdout "$dir/programs.tar.xz" | tar --extract --directory "$dir"
    echo "$archive" >"$dir/unpacked"
}

# One of the programs, with its arguments.
program() {
    local library=$dir/libunused.so
    [ -e "$library" ] || library=
    LD_PRELOAD=$library timeout --foreground --signal INT "$limit" "$dir/$1" "${@:2}"
}

# One line, and status 2, where there is no GPU.
probe() {
    export LD_LIBRARY_PATH=${CUDA_PATH:-/usr/local/cuda}/lib64:${LD_LIBRARY_PATH:-}
    program head_throughput --device cuda --tokens 1 --vocab 2 --repeats 1 >/dev/null
}

# The last workload, if it was given up.
given_up=
# record WHAT WHO ROUND COMMAND...: a peer's run comes after one of ours, and is left out if that was given up.
record() {
    local what=$1 who=$2 round=$3
    shift 3
    if [ "$who" != highrank ] && [ -n "$given_up" ]; then
        echo "left out, for ours was given up: $what, $who" >&2
        return
    fi
    given_up=
    echo "round $round: $what, $who" >&2
    local result
    if result=$("$@"); then
        printf '{"what":"%s","who":"%s","round":%s,"result":%s}\n' "$what" "$who" "$round" "$result"
    else
        given_up=$what
        echo "given up: $what, $who" >&2
    fi
}
sizes=(--tokens 840 --d-hidden 620 --d-embedding 280 --vocab 10000 --components 15)
peer() { timeout --foreground "$limit" "$python" "benches/peers/torch_$1.py" --device cuda --json "${@:2}"; }
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
# Log-probabilities of given words, and with the entropy, under a weighted sum.
# shellcheck disable=SC2086
run_policies() {
    local round=$1 head precision asked entropy
    for precision in full bf16; do
        for asked in log-probs policy; do
            entropy=""
            if [ "$asked" = policy ]; then entropy=--entropy; fi
            for head in softmax mos; do
                record "$asked step, $head" highrank "$round" \
                    ours head_throughput --head "$head" "${sizes[@]}" --options "$asked" --precision "$precision" --repeats 20
                record "$asked step, $head" PyTorch "$round" \
                    peer log_probs --head "$head" $entropy "${sizes[@]}" --repeats 20 ${same[$precision]}
            done
        done
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
# Time and number of each kernel of one step, the longest first. The program makes three alike: two to warm up.
run_kernels() {
    local log
    log=$(mktemp)
    for precision in full bf16; do
        # Once without the profiler, which would also time what the tuner tries.
        ours step_throughput --head mos --precision $precision --repeats 1 >/dev/null
        ncu --clock-control none --metrics gpu__time_duration.sum --csv --log-file "$log" --target-processes all \
            "$PWD/scripts/gpu_bench.sh" one "$dir" step_throughput --device cuda --json --head mos --precision $precision --repeats 1 >/dev/null
        echo "a \`paper\` step of MoS, $precision: ms, launches, kernel"
        "$python" - "$log" <<'PYTHON'
import collections, csv, sys
rows = list(csv.DictReader(line for line in open(sys.argv[1]) if line.startswith('"')))
times, counts = collections.Counter(), collections.Counter()
for row in rows[len(rows) * 2 // 3:]:
    name = row["Kernel Name"]
    times[name] += float(row["Metric Value"].replace(",", "")) / 1e6
    counts[name] += 1
print(f"{sum(times.values()):8.2f} {sum(counts.values()):5} together")
for name, time in times.most_common(30):
    print(f"{time:8.3f} {counts[name]:5} {name}")
PYTHON
    done
    rm "$log"
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
        export CARGO_MANIFEST_DIR=$PWD/tests
        program golden --nocapture --test-threads 1 every_ training
        ;;
    run)
        [ $# -ge 4 ] || usage
        rounds=$4 limit=${LIMIT:-240} parts=("${@:5}")
        [ ${#parts[@]} -gt 0 ] || parts=(lstm steps heads chunks policies)
        for part in "${parts[@]}"; do [[ $part =~ ^(lstm|steps|heads|chunks|policies|kernels)$ ]] || usage; done
        [[ $rounds =~ ^[1-9][0-9]*$ ]] || usage
        unpack
        probe
        run
        ;;
    train)
        [ $# -ge 3 ] || usage
        unpack
        probe
        program highrank train "${@:3}" --device cuda
        ;;
    # What the profiler runs.
    one) program "${@:3}" ;;
    *) usage ;;
esac
