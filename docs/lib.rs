//! Compiles and runs the code of the README and of the book with the documentation tests.

/// The pages with code.
macro_rules! pages {
    ($($name:ident: $path:literal),* $(,)?) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!($path)]
            struct $name;
        )*
    };
}

pages! {
    Readme: "../README.md",
    Start: "start.md",
    Choose: "choose.md",
    Train: "train.md",
    Transformers: "transformers.md",
    Policies: "policies.md",
    LargeVocabularies: "large-vocabularies.md",
    Analyse: "analyse.md",
}
