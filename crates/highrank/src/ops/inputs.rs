//! Values for each input of an operation: its gradients, and which of them are wanted.

/// Defines a struct with a value for each input of an operation that may be differentiated, and two names for
/// it: with an optional tensor for each input, and with a flag for each.
///
/// A field after `..` is such a struct itself. Its values come last in the array.
macro_rules! per_input {
    (
        $(#[$about:meta])*
        pub struct $Inputs:ident {
            $($(#[$doc:meta])* $field:ident,)*
            $(.. $(#[$inner_doc:meta])* $inner:ident: $Inner:ident,)*
        }
        $(#[$about_gradients:meta])*
        pub type $Gradients:ident;
        $(#[$about_wanted:meta])*
        pub type $Wanted:ident;
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $Inputs<T> {
            $($(#[$doc])* pub $field: T,)*
            $($(#[$inner_doc])* pub $inner: $Inner<T>,)*
        }

        $(#[$about_gradients])*
        pub type $Gradients<F = highrank_kernels::Floats> = $Inputs<Option<F>>;

        $(#[$about_wanted])*
        pub type $Wanted = $Inputs<bool>;

        // One macro for several structs, of which not each needs all.
        #[allow(dead_code)]
        impl<T> $Inputs<T> {
            /// How many values there are.
            pub const COUNT: usize = [$(stringify!($field)),*].len() $(+ $Inner::<()>::COUNT)*;

            /// The values in the order of the fields.
            pub fn into_array(self) -> [T; $Inputs::<()>::COUNT] {
                let mut all = [$(self.$field),*].into_iter()$(.chain(self.$inner.into_array()))*;
                std::array::from_fn(|_| all.next().expect("as many as are counted"))
            }

            /// The inverse of [`into_array`](Self::into_array).
            pub fn from_array(values: [T; $Inputs::<()>::COUNT]) -> Self {
                let mut all = values.into_iter();
                let mut next = || all.next().expect("as many as are counted");
                Self {
                    $($field: next(),)*
                    $($inner: $Inner::from_array(std::array::from_fn(|_| next())),)*
                }
            }

            /// References to the values.
            pub fn each_ref(&self) -> $Inputs<&T> {
                $Inputs { $($field: &self.$field,)* $($inner: self.$inner.each_ref(),)* }
            }

            /// Each value with the other one for the same input.
            pub fn zip<U>(self, other: $Inputs<U>) -> $Inputs<(T, U)> {
                $Inputs {
                    $($field: (self.$field, other.$field),)*
                    $($inner: self.$inner.zip(other.$inner),)*
                }
            }

            /// Each value changed by `f`, in the order of the fields.
            pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> $Inputs<U> {
                $Inputs { $($field: f(self.$field),)* $($inner: self.$inner.map(&mut f),)* }
            }
        }

        #[allow(dead_code)]
        impl $Wanted {
            /// Every gradient there is.
            pub const ALL: Self = Self { $($field: true,)* $($inner: $Inner::ALL,)* };
        }
    };
}
pub(super) use per_input;
