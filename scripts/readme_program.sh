#!/usr/bin/env bash
# Builds and runs the program of README.md in an empty crate with exactly the dependencies that stand above it.
#
#   scripts/readme_program.sh [CARGO OPTIONS]      # e.g. --offline
#
# The crate is beside a link named `highrank` to this checkout, so the path in the page leads here. Versions are those of Cargo.lock. All of it,
# and what is built, is in the checkout's target folder, or where CARGO_TARGET_DIR says.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${CARGO_TARGET_DIR:=$root/target}/readme/program/src"
CARGO_TARGET_DIR=$(cd "$CARGO_TARGET_DIR" && pwd)
export CARGO_TARGET_DIR
parent=$CARGO_TARGET_DIR/readme
ln -sfn "$root" "$parent/highrank"

# block LANGUAGE: the first block of code of that language below the heading "Use it".
block() {
    awk -v fence="\`\`\`$1" '/^## Use it/ { below = 1 } below && inside && /^```/ { exit } inside { print } below && $0 == fence { inside = 1 }' "$root/README.md"
}
{
    printf '[package]\nname = "program"\nversion = "0.1.0"\nedition = "2024"\npublish = false\n\n[workspace]\n\n'
    block toml
} > "$parent/program/Cargo.toml"
block rust > "$parent/program/src/main.rs"
for part in Cargo.toml src/main.rs; do
    grep -q highrank "$parent/program/$part" || { echo "error: README.md has no program below \"Use it\": \`$part\` would be empty" >&2; exit 2; }
done
cp "$root/Cargo.lock" "$parent/program/Cargo.lock"

# Unoptimised: it is to compile, and to run for some steps.
printed=$(cargo run --quiet "$@" --manifest-path "$parent/program/Cargo.toml")
echo "$printed"
case $printed in
    *"after word 7: 8") ;;
    *) echo "error: the program of README.md did not learn that word 8 follows word 7" >&2; exit 1 ;;
esac
