# The one-command check, cheapest first, or some of its steps.
check *steps:
    bash .ci/run {{steps}}

# Reformats everything.
fmt:
    cargo fmt --all -- crates/highrank/src/logit_map/*.rs

# The tests alone.
test *args:
    cargo test --release {{args}}

# The book, to target/book/docs, with the pictures that its pages show; needs mdbook. Links to other files lead to the repository.
book:
    mdbook build docs
    mkdir -p target/book/benches
    cp -r results target/book/
    cp -r benches/results target/book/benches/
    find target/book/docs -name '*.html' -exec sed -i -E \
        -e 's#href="(\.\./)+((crates|examples|fuzz|benches|studies|tests|scripts|[A-Z]+)[^"]*)"#href="{{repository}}/\2"#g' \
        -e 's#(href="{{repository}}/[^"\#]*)\.html#\1.md#g' {} +

repository := `sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml` + "/blob/main"

# The benches: heads, lstm or step.
bench name *args:
    cargo bench --bench {{name}} -- {{args}}
