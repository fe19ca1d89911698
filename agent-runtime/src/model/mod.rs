//! Models as the runtime sees them: providers, requests, answers and faults.

pub(crate) mod event;
pub(crate) mod fault;
pub(crate) mod kept;
pub(crate) mod media;
pub(crate) mod offline;
pub(crate) mod options;
pub(crate) mod picture;
pub(crate) mod provider;
pub(crate) mod replay;
pub(crate) mod request;
pub(crate) mod retry;
pub(crate) mod signed;
pub(crate) mod summarizer;
pub(crate) mod text;

/// Returns the bytes in hexadecimal, in lower case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits =
        bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    digits.map(char::from).collect()
}
