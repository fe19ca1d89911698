//! Setters of option structs, declared in one line each.

/// Declares setters in an `impl` block: each takes the struct, sets one field, and returns the struct.
///
/// ```
/// use agent_core::setters;
///
/// #[derive(Default)]
/// pub struct Options {
///     name: Option<String>,
///     tries: u32,
/// }
///
/// impl Options {
///     setters! {
///         /// Sets the name.
///         pub fn with_name(name: impl Into<String>) => name = Some(name.into());
///
///         /// Sets the maximum number of tries.
///         pub const fn with_tries(tries: u32) => tries = tries;
///     }
/// }
///
/// let options = Options::default().with_name("nightly").with_tries(3);
/// assert_eq!((options.name.as_deref(), options.tries), (Some("nightly"), 3));
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    () => {};
    (
        $(#[$meta:meta])*
        $vis:vis const fn $name:ident($($argument:ident: $type:ty),*) => $($field:ident).+ = $value:expr;
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[must_use]
        #[allow(clippy::double_must_use, reason = "the struct may be `must_use`, too")]
        $vis const fn $name(mut self, $($argument: $type),*) -> Self {
            self.$($field).+ = $value;
            self
        }

        $crate::setters! { $($rest)* }
    };
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident($($argument:ident: $type:ty),*) => $($field:ident).+ = $value:expr;
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[must_use]
        #[allow(clippy::double_must_use, reason = "the struct may be `must_use`, too")]
        $vis fn $name(mut self, $($argument: $type),*) -> Self {
            self.$($field).+ = $value;
            self
        }

        $crate::setters! { $($rest)* }
    };
}
