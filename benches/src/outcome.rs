//! Outcome of a measurement, or the reason for which there is none.

/// What a step came to: any failure ends the program.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
