//! Compiles and runs the code of the README and of the guide with the documentation tests.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("guide.md")]
struct Guide;
