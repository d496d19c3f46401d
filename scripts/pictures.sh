#!/usr/bin/env bash
# Draws the pictures of results/ and benches/results/ anew from the files beside them.
#
#   scripts/pictures.sh             # writes them
#   scripts/pictures.sh --check     # writes nothing; fails if a picture is not what its file gives
#
# results/NAME.jsonl becomes results/NAME.svg, and where there are several pictures, a setting each, results/NAME-SETTING.svg:
#   lines of `sweep`                                  perplexity against each setting, or of each head
#   lines with `head`, `epoch` or `step`, and `valid_ppl`    a curve a head, as `plot` draws them
#   lines that `analyse rank`, `gradient` or `plif` printed with --json    their picture
#   lines that `synthetic` or `synthetic repeated` printed with --json  results/NAME-PICTURE.svg each
# benches/results/DATE-NAME.svg, where it exists, are the ratios in DATE-NAME.jsonl and DATE-*-peers.jsonl beside it.
# A picture that no command draws, such as of runs that are not kept, is named and left alone. A picture that is not there is drawn if a
# page shows it: what no page shows is not kept.
#
# Environment variable: PROGRAMS, the folder of the programs `highrank`, `bench_report` and `studies` (built if it is not given).
set -euo pipefail
cd "$(dirname "$0")/.."
check=0
case $#,${1:-} in
    0,) ;;
    1,--check) check=1 ;;
    *) echo "error: expected nothing or --check, as in: scripts/pictures.sh --check" >&2; exit 2 ;;
esac
if [ -z "${PROGRAMS:-}" ]; then
    cargo build --quiet --release --locked --workspace --bins
    PROGRAMS=${CARGO_TARGET_DIR:-target}/release
fi
for program in highrank bench_report studies; do
    [ -x "$PROGRAMS/$program" ] || { echo "error: \`$PROGRAMS/$program\` is not there: PROGRAMS is the folder of three programs" >&2; exit 2; }
done

drawn=$(mktemp -d)
trap 'rm -rf "$drawn"' EXIT
mkdir -p "$drawn/results" "$drawn/benches/results"

# Whether file $1 has runs of one model alone, which differ in their seeds.
is_one_model() {
    [ "$(sed -nE 's/.*("head":"[^"]*").*("settings":\{[^}]*\},"parameters":[0-9]+).*/\1 \2/p' "$1" | sort -u | wc -l)" = 1 ]
}

# The pictures of what file $1 says, named after $2.
plot() {
    local out=$drawn/plot-$2 found
    "$PROGRAMS/highrank" plot "$1" --out "$out" > /dev/null
    found=("$out"/*.svg)
    if [ ${#found[@]} = 1 ]; then
        [ ! -f "${found[0]}" ] || mv "${found[0]}" "$drawn/results/$2.svg"
        return
    fi
    local picture setting
    for picture in "${found[@]}"; do
        setting=$(basename "$picture" .svg)
        mv "$picture" "$drawn/results/$2-${setting#by-}.svg"
    done
}

# One picture of the curves in file $1, named after $2; lines of one head are one run.
curves() {
    local out=$drawn/curves-$2 head runs=()
    while read -r head; do
        mkdir -p "$out/$head"
        grep -E "\"head\": ?\"$head\"" "$1" > "$out/$head/metrics.jsonl"
        runs+=("$out/$head")
    done < <(sed -nE 's/.*"head": ?"([^"]+)".*/\1/p' "$1" | awk '!seen[$0]++')
    "$PROGRAMS/highrank" curves --run "${runs[@]}" --out "$out" > /dev/null
    mv "$out/curves.svg" "$drawn/results/$2.svg"
}

# The pictures of the experiment $3... that printed file $1, named after $2.
experiment() {
    local out=$drawn/experiment-$2 picture stem
    "$PROGRAMS/studies" "${@:3}" --from "$1" --out "$out" > /dev/null
    for picture in "$out"/*.svg; do
        stem=$(basename "$picture" .svg)
        stem=${stem#repeated_}
        mv "$picture" "$drawn/results/$2-${stem//_/-}.svg"
    done
}

for file in results/*.jsonl; do
    name=$(basename "$file" .jsonl)
    first=$(head -1 "$file")
    case $first in
        *'"singular_values"'* | *'"squared_share"'* | *'"slope_mean"'*) plot "$file" "$name" ;;
        *'"mode_match_spread"'*) experiment "$file" "$name" synthetic ;;
        *'"guessing"'*) experiment "$file" "$name" synthetic repeated ;;
        *'"bleu"'*) echo "$file: tables alone" ;;
        *'"trial"'*) echo "$file: draws of a random search, whose pictures are left alone" ;;
        *'"best_epoch"'* | *'"lstm_sizes"'*)
            if is_one_model "$file"; then echo "$file: one model, nothing to compare"; else plot "$file" "$name"; fi
            ;;
        *'"head"'*'"epoch"'*'"valid_ppl"'* | *'"head"'*'"step"'*'"valid_ppl"'*) curves "$file" "$name" ;;
        *) echo "$file: no picture is drawn of such lines" ;;
    esac
done
shopt -s nullglob
for picture in benches/results/*.svg; do
    name=$(basename "$picture" .svg)
    [ -f "benches/results/$name.jsonl" ] || continue
    "$PROGRAMS/bench_report" "benches/results/$name.jsonl" benches/results/"${name:0:10}"-*-peers.jsonl --plot "$drawn/$picture" > /dev/null
done

# Whether a page shows picture $1.
shown() { grep -rqF --include='*.md' --exclude-dir=target "$1" .; }

differ=0
for picture in results/*.svg benches/results/*.svg; do
    [ -f "$drawn/$picture" ] || echo "$picture: left alone, for no file gives it"
done
for new in "$drawn"/results/*.svg "$drawn"/benches/results/*.svg; do
    picture=${new#"$drawn/"}
    [ -f "$picture" ] || shown "$picture" || continue
    if cmp -s "$new" "$picture"; then
        echo "$picture: as its file says"
    elif [ $check = 0 ]; then
        cp "$new" "$picture"
        echo "$picture: drawn"
    else
        echo "error: \`$picture\` is not what its file gives: scripts/pictures.sh draws it anew" >&2
        differ=1
    fi
done
exit $differ
