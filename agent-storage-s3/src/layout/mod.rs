//! Keys of all objects, lines within them, and the settings that decide both.

pub(crate) mod fields;
pub(crate) mod keys;
pub(crate) mod line;
pub(crate) mod settings;
