//! Choices on command lines and in messages.

/// Gives a choice `ALL` of its variants in the order of this list, and a `name()`. It is written as its name and read from it; another
/// text is an [unknown name](crate::Error::UnknownName) of what it should be.
///
/// ```
/// /// A side.
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// pub enum Side {
///     /// The one of the heart.
///     Left,
///     /// The other one.
///     Right,
/// }
///
/// runs::by_name!(Side, "side": Left => "left", Right => "right");
///
/// assert_eq!((Side::ALL, Side::Right.name()), (&[Side::Left, Side::Right][..], "right"));
/// assert_eq!("left".parse::<Side>().unwrap(), Side::Left);
/// assert_eq!("up".parse::<Side>().unwrap_err().to_string(), "unknown side `up`; known: left, right");
/// ```
#[macro_export]
macro_rules! by_name {
    ($Choice:ty, $what:literal: $($variant:ident => $name:expr),+ $(,)?) => {
        impl $Choice {
            /// All of them, in the order in which they are listed to users.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name on command lines and in files.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl ::std::fmt::Display for $Choice {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl ::std::str::FromStr for $Choice {
            type Err = $crate::Error;

            fn from_str(text: &str) -> Result<Self, $crate::Error> {
                let found = Self::ALL.iter().copied().find(|choice| choice.name() == text);
                found.ok_or_else(|| $crate::Error::unknown_name($what, text, Self::ALL))
            }
        }
    };
}
