//! Within a crate, data flows down: no two files import each other, nor two folders, nor any longer circle of them.
//!
//! `use` declarations and paths in code count, tests do not. A `pub use` of what a child defines is no import, unless the
//! module's own code names it too.

mod circles;
mod modules;
mod source;

use std::path::Path;

use circles::report;
use highrank_tests::{entries, files};
use modules::Crate;

#[test]
fn no_files_or_folders_import_each_other() {
    let house = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut circles = vec![];
    let mut imports = 0;
    let packages = entries(&house.join("crates"));
    for folder in packages.into_iter().chain(["benches", "studies"].map(|name| house.join(name))) {
        let edges = Crate::new(&files(&folder.join("src"), ".rs", |_| true)).edges();
        imports += edges.len();
        let name = folder.file_name().unwrap().to_string_lossy();
        circles.extend(report(&edges).into_iter().map(|circle| format!("{name}/src: {circle}")));
    }
    assert!(imports > 0, "no import was found in {}", house.display());
    assert!(circles.is_empty(), "{} circles:\n{}", circles.len(), circles.join("\n"));
}

/// Made-up files.
fn made_up(files: &[(&str, &str)]) -> Crate {
    Crate::new(&files.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect::<Vec<_>>())
}

/// The one circle of made-up files.
#[track_caller]
fn circle_of(files: &[(&str, &str)]) -> String {
    let mut circles = report(&made_up(files).edges());
    assert_eq!(circles.len(), 1, "{circles:?}");
    circles.remove(0)
}

#[test]
fn two_files_that_import_each_other_are_a_circle() {
    let circle = circle_of(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::{\n    b::{B, other},\n};\npub struct A(B);"),
        ("b.rs", "//! Text.\n\npub struct B;\nfn b() { let _ = crate::a::A::new(); }"),
    ]);
    let lines = ["a.rs:2: crate::b::B, of b.rs", "a.rs:2: crate::b::other, of b.rs"];
    let expected = format!(
        "a circle of files: a.rs, b.rs\n    {}\n    b.rs:4: crate::a::A::new, of a.rs",
        lines.join("\n    ")
    );
    assert_eq!(circle, expected);
}

#[test]
fn three_files_may_be_a_circle() {
    let circle = circle_of(&[
        ("a.rs", "use crate::b::f;"),
        ("b.rs", "use crate::c::f; pub fn g() {}"),
        ("c.rs", "use crate::a; pub fn f() { a::f() }"),
        ("d.rs", "use crate::a::f;"),
    ]);
    assert!(circle.starts_with("a circle of files: a.rs, b.rs, c.rs\n"), "{circle}");
}

#[test]
fn a_reexport_is_no_import() {
    let parent = "mod x;\nmod y;\npub use x::X;\npub(crate) use self::y::{Y, Z as W};\npub struct Own;";
    let x = ("a/x.rs", "use super::Own; pub struct X;");
    // Through the parent from the child that defines it.
    let y = ("a/y.rs", "use super::X; pub struct Y(X); pub struct Z;");
    assert!(report(&made_up(&[("a/mod.rs", parent), x, y]).edges()).is_empty());
    // The parent's own code names what it re-exports.
    let circle = circle_of(&[("a/mod.rs", &format!("{parent} fn f(x: X) {{}}")), x, y]);
    assert!(circle.starts_with("a circle of files: a/mod.rs, a/x.rs\n"), "{circle}");
    assert!(circle.contains("a/mod.rs:3: x::X, of a/x.rs"), "{circle}");
}

#[test]
fn a_parent_and_its_child_may_be_a_circle() {
    let child = "use super::Own; pub fn f() {}";
    for parent in ["mod x;\nuse x::f;\npub struct Own;", "mod x;\npub struct Own;\nfn g() { x::f() }"] {
        let circle = circle_of(&[("a/mod.rs", parent), ("a/x.rs", child)]);
        assert!(circle.starts_with("a circle of files: a/mod.rs, a/x.rs\n"), "{circle}");
        // The same module, in a file beside its folder.
        let circle = circle_of(&[("a.rs", parent), ("a/x.rs", child)]);
        assert!(circle.starts_with("a circle of files: a.rs, a/x.rs\n"), "{circle}");
    }
}

#[test]
fn folders_may_be_a_circle_where_files_are_none() {
    let circle = circle_of(&[
        ("lib.rs", "mod a; mod b;"),
        ("a/mod.rs", "mod one; pub mod two; pub use one::One;"),
        ("a/one.rs", "use crate::b::Thing; pub struct One;"),
        ("a/two.rs", "pub struct Two;"),
        ("b.rs", "use crate::a::two::Two; pub struct Thing;"),
    ]);
    assert!(circle.starts_with("a circle of folders: a, b\n"), "{circle}");
    assert!(circle.contains("a/one.rs:1") && circle.contains("b.rs:1"), "{circle}");

    let circle = circle_of(&[
        ("top/a/x.rs", "use super::super::b::y::f; pub fn g() {}"),
        ("top/a/z.rs", "pub fn h() {}"),
        ("top/b/y.rs", "use crate::top::a::z::h; pub fn f() {}"),
    ]);
    assert!(circle.starts_with("a circle of folders: top/a, top/b\n"), "{circle}");
}

#[test]
fn names_are_followed_to_where_they_are_defined() {
    let c = "use crate::Deep; use crate::a::alias; use crate::a::part::here; use crate::Kind::One;
        fn c() { alias::f(); std::mem::drop(1); }";
    let files = [
        ("lib.rs", "mod a; mod b; mod c; pub use a::inner::Deep; pub use b::*;"),
        ("a/mod.rs", "pub mod inner; pub use inner as alias; pub mod part { pub fn here() {} }"),
        ("a/inner.rs", "pub struct Deep; pub fn f() {}"),
        ("b.rs", "pub enum Kind { One } impl Kind { fn f(self) { use Kind::*; } }"),
        ("c.rs", c),
    ];
    let edges = made_up(&files).edges();
    let found: Vec<_> = edges.keys().map(|(from, to)| format!("{from} {to}")).collect();
    assert_eq!(found, ["c.rs a/inner.rs", "c.rs a/mod.rs", "c.rs b.rs"]);
}

#[test]
fn tests_comments_and_literals_do_not_count() {
    let b = r##"
        use std::fmt;
        // use crate::a::A;
        /* crate::a::A /* nested */ crate::a::A */
        const TEXT: &'static str = "crate::a::A \" crate::a::A";
        const RAW: &str = r#"crate::a::A " crate::a::A"#;
        const QUOTE: (char, char, char) = ('"', '\'', '\u{1F}');
        #[cfg(test)]
        use crate::a::{A, f};
        #[cfg(all(test, feature = "flex"))]
        #[path = "b_tests.rs"]
        mod tests;
        #[cfg(test)]
        pub(crate) mod testing;
        #[cfg(test)]
        fn g() -> [u8; 3] { crate::a::A; [0; 3] }
        pub struct B;
        #[cfg(all(test, feature = "flex"))]
        mod inline { use crate::a::A; fn f() { { crate::a::f() } } }
    "##;
    let edges = |last: &str| {
        let files = [
            ("a.rs", "pub struct A;"),
            ("b.rs", &format!("{b}{last}")),
            ("b_tests.rs", "use crate::a::A;"),
            ("b/testing.rs", "use crate::a::A; pub struct T;"),
            ("b/tests.rs", "use crate::a::A;"),
        ];
        made_up(&files).edges()
    };
    assert!(edges("").is_empty(), "{:?}", edges(""));
    // All of it was read, to its end.
    for last in ["use crate::a::A;", "#[cfg(any(test, unix))] use crate::a::A;"] {
        assert_eq!(edges(last).len(), 1, "{last}");
    }
}
