//! Choices on command lines and in messages.

/// Writes a choice as its `name()`, and reads it as one of `ALL`; another text is an
/// [unknown name](crate::Error::UnknownName) of what it should be.
///
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum Side {
///     Left,
///     Right,
/// }
///
/// impl Side {
///     const ALL: &[Self] = &[Self::Left, Self::Right];
///
///     fn name(self) -> &'static str {
///         match self {
///             Self::Left => "left",
///             Self::Right => "right",
///         }
///     }
/// }
///
/// runs::by_name!(Side, "side");
///
/// assert_eq!("left".parse::<Side>().unwrap(), Side::Left);
/// assert_eq!("up".parse::<Side>().unwrap_err().to_string(), "unknown side `up`; known: left, right");
/// ```
#[macro_export]
macro_rules! by_name {
    ($Choice:ty, $what:literal) => {
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
