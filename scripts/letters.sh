#!/usr/bin/env bash
# Reduces a text to the 27 characters of text8: the letters a to z and single blanks.
#
#   scripts/letters.sh FROM TO
#   cargo run --release --example ptb_mos -- train --data TO --preset text8 --head mos ...
#
# FROM is a folder with train.txt, valid.txt and test.txt; TO, which is created, gets files of the same names, one line each. As in
# Matt Mahoney's text8: capitals become small, digits are spelled out, and everything else, line ends and letters with accents too,
# becomes one blank. <unk> is no text and goes with it. A start that was stopped goes on: TO/.from names its FROM until all is there.
set -euo pipefail
export LC_ALL=C
fail() {
    echo "error: $*" >&2
    exit 2
}
[ $# -eq 2 ] || fail "expected FROM TO, as in: scripts/letters.sh wikitext-2 wikitext-2-letters"
from=$1 to=$2
stopped=$(cat "$to/.from" 2>/dev/null || true)
for name in train valid test; do
    [ -f "$from/$name.txt" ] || fail "\`$from/$name.txt\` does not exist: FROM needs train.txt, valid.txt and test.txt"
    [ "$stopped" = "$(realpath "$from")" ] || [ ! -e "$to/$name.txt" ] || fail "\`$to/$name.txt\` is already there"
done
mkdir -p "$to" 2>/dev/null || fail "cannot create \`$to\`"
{ realpath "$from" > "$to/.from"; } 2>/dev/null || fail "cannot write to \`$to\`"
digits=(zero one two three four five six seven eight nine)
spell='s/<unk>/ /g'
for digit in "${!digits[@]}"; do spell+=";s/$digit/ ${digits[digit]} /g"; done
for name in train valid test; do
    [ ! -e "$to/$name.txt" ] || continue
    # Under another name until it is whole.
    # shellcheck disable=SC2018,SC2019 # these 26 letters alone
    sed "$spell" "$from/$name.txt" | tr 'A-Z' 'a-z' | tr -cs 'a-z' ' ' > "$to/.$name.txt.part"
    mv "$to/.$name.txt.part" "$to/$name.txt"
done
rm "$to/.from"
