# The one-command check, cheapest first, or some of its steps.
check *steps:
    bash .ci/run {{steps}}

# Reformats everything.
fmt:
    cargo fmt --all -- crates/highrank/src/logit_map/*.rs

# The tests alone.
test *args:
    cargo test --release {{args}}

# The book, to target/book/docs, with the pictures that its pages show; needs mdbook.
book:
    mdbook build docs
    mkdir -p target/book/benches
    cp -r results target/book/
    cp -r benches/results target/book/benches/

# The benches: heads, lstm or step.
bench name *args:
    cargo bench --bench {{name}} -- {{args}}
