#!/usr/bin/env bash
# What large inputs and long runs need: time, peak memory, files left behind. One line of JSON a part.
#
#   scripts/load.sh WORK            # all parts
#   scripts/load.sh WORK text       # some: text, vocabulary, sequences, saves
#
# WORK is a folder for generated text and runs, created and removed again. Parts, and what fails:
#
#   text         GIGABYTES (5) of generated text in 20 files: encoded, then a model trained for half a minute, then started again from the
#                encoded ids; more than 300 MB of memory in either. Needs twice the text's room on the disk
#   vocabulary   a step of a softmax over V 262,144 with d 4,096, weights, hidden states and products in bfloat16, in 10 GB
#   sequences    a step of 155,000 tokens at once, as of 10,000 sequences of 1 to 30 words, and 17,000 of padding, in 1 GB
#   saves        a run that is saved after every step, some thousand times: a file that stays behind
#
# Environment variables: PROGRAM, the program `highrank` with `head_throughput` beside it (both built if it is not given). Linux only:
# peaks are those of /proc.
set -euo pipefail
all=(text vocabulary sequences saves)
usage() {
    echo "error: expected WORK [PART]..., parts of ${all[*]}, as in: scripts/load.sh /tmp/load text" >&2
    exit 2
}
[ -n "${1:-}" ] || usage
work=$1
shift
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=("${all[@]}")
for part in "${parts[@]}"; do [[ " ${all[*]} " == *" $part "* ]] || usage; done
gigabytes=${GIGABYTES:-5}
[[ $gigabytes =~ ^[1-9][0-9]*$ ]] || { echo "error: GIGABYTES is \`$gigabytes\`, but must be a whole number" >&2; exit 2; }
[ ! -e "$work" ] || { echo "error: \`$work\` exists; WORK is created and removed again" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${PROGRAM:-}" ]; then
    (cd "$root" && cargo build --quiet --release --locked --bin highrank --bin head_throughput)
    PROGRAM=$(cd "$root" && realpath -m "${CARGO_TARGET_DIR:-target}")/release/highrank
fi
head_throughput=$(dirname "$PROGRAM")/head_throughput
needed=("$PROGRAM")
[[ " ${parts[*]} " != *" vocabulary "* && " ${parts[*]} " != *" sequences "* ]] || needed+=("$head_throughput")
for program in "${needed[@]}"; do
    [[ -f $program && -x $program ]] || { echo "error: PROGRAM is \`$PROGRAM\`, but \`$program\` is no program" >&2; exit 2; }
done
mkdir -p "$work"
# The program that is being measured, if there is one.
pid=
clean_up() {
    [ -z "$pid" ] || kill "$pid" 2> /dev/null || true
    wait
    rm -rf "$work"
}
trap clean_up EXIT
fail() {
    echo "error: $1" >&2
    exit 1
}

# peak COMMAND...: runs it, and sets `megabytes` to its peak memory and `seconds` to its time.
peak() {
    local before=$SECONDS now status=0
    megabytes=0
    "$@" > "$work/out" 2> "$work/err" &
    pid=$!
    while [ -d "/proc/$pid" ]; do
        now=$(awk '/^VmHWM/ { print int($2 * 1024 / 1000000) }' "/proc/$pid/status" 2> /dev/null || true)
        [ "${now:-0}" -le "$megabytes" ] || megabytes=$now
        sleep 0.1
    done
    wait "$pid" || status=$?
    pid=
    [ $status = 0 ] || fail "$* failed: $(tail -1 "$work/err")"
    seconds=$((SECONDS - before))
}

# words LINES FILE: lines of 20 words, of 50,000 different ones, all about as frequent.
words() {
    awk -v lines="$1" 'BEGIN {
        for (line = 0; line < lines; line++) {
            for (word = 0; word < 19; word++) printf "word%05d ", (line * 20 + word) * 617 % 50000
            printf "word%05d\n", (line * 20 + 19) * 617 % 50000
        }
    }' > "$2"
}

run_text() {
    local data=$work/text shard first
    mkdir -p "$data/train"
    # 50 MB, which every file repeats: 200 bytes a line.
    words 250000 "$work/block"
    for shard in $(seq -w 20); do
        for _ in $(seq "$gigabytes"); do cat "$work/block"; done > "$data/train/$shard"
    done
    words 100 "$data/valid.txt"
    words 100 "$data/test.txt"
    local model=(--preset small --head softmax --d-embedding 16 --lstm "16,16" --batch 20 --max-time 30s --no-test --token-cache "$work/ids")
    peak "$PROGRAM" train --data "$data" "${model[@]}" --out "$work/first"
    first="\"encoded_s\":$seconds,\"peak_mb\":$megabytes"
    [ "$megabytes" -lt 300 ] || fail "encoding took $megabytes MB"
    peak "$PROGRAM" train --data "$data" "${model[@]}" --out "$work/second"
    [ "$megabytes" -lt 300 ] || fail "reading took $megabytes MB"
    printf '{"part":"text","bytes":%s,"ids_bytes":%s,%s,"again_s":%s,"again_peak_mb":%s}\n' \
        "$(du -bs "$data/train" | cut -f1)" "$(du -bs "$work/ids" | cut -f1)" "$first" "$seconds" "$megabytes"
    rm -rf "$data" "$work/ids" "$work/block"
}

run_vocabulary() {
    peak "$head_throughput" --head softmax --vocab 262144 --d-embedding 4096 --tokens 64 --repeats 1 \
        --dtype bf16 --precision bf16 --device flex --json
    [ "$megabytes" -lt 10000 ] || fail "a step over V 262,144 took $megabytes MB"
    printf '{"part":"vocabulary","peak_mb":%s,"seconds":%s,"result":%s}\n' "$megabytes" "$seconds" "$(cat "$work/out")"
}

run_sequences() {
    peak "$head_throughput" --head mos --components 5 --vocab 2000 --d-hidden 128 --d-embedding 64 --tokens 155000 \
        --options ignore --repeats 1 --device flex --json
    [ "$megabytes" -lt 1000 ] || fail "a step of 10,000 sequences took $megabytes MB"
    printf '{"part":"sequences","peak_mb":%s,"seconds":%s,"result":%s}\n' "$megabytes" "$seconds" "$(cat "$work/out")"
}

run_saves() {
    local data=$work/saves left saves
    mkdir -p "$data"
    words 2000 "$data/train.txt"
    words 50 "$data/valid.txt"
    words 50 "$data/test.txt"
    peak "$PROGRAM" train --data "$data" --preset small --head mos --components 2 --d-embedding 4 --lstm 8,8 --vocab-size 100 \
        --batch 4 --bptt 10 --epochs 3 --log-every 1 --checkpoint-every 0.000001 --device flex --out "$work/run"
    saves=$(wc -l < "$work/run/steps.jsonl")
    left=$(cd "$work/run" && find . -name '*.new' -o -name '*.old' -o -name '.replacing-*')
    [ -z "$left" ] || fail "left behind: $left"
    printf '{"part":"saves","steps":%s,"files":%s,"kilobytes":%s,"peak_mb":%s,"seconds":%s}\n' "$saves" \
        "$(find "$work/run" -type f | wc -l)" "$(du -s "$work/run" | cut -f1)" "$megabytes" "$seconds"
}

for part in "${parts[@]}"; do "run_$part"; done
