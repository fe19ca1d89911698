//! Mutations of valid inputs, by bytes and by structure, from a seed.

/// Pieces that readers look for, and numbers at the ends of their ranges.
const PIECES: [&str; 28] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ",",
    ":",
    "=",
    "\n",
    "\r\n",
    "null",
    "true",
    "-1",
    "0",
    "9223372036854775808",
    "18446744073709551615",
    "1e999",
    "0.10",
    "\\u0000",
    "\\ud83d",
    "\u{feff}",
    "\0",
    "---\n",
    "## User\n",
    "%",
    "%00",
    "é",
];

/// Sequence of numbers that a seed determines (SplitMix64).
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// Starts the sequence of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number below `end`, or 0 if `end` is 0.
    pub const fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        if end == 0 { 0 } else { (mixed % end as u64) as usize }
    }
}

/// Returns one of the inputs after one to five changes, or unchanged in one of eight cases.
pub fn mutated(inputs: &[Vec<u8>], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = inputs[numbers.below(inputs.len())].clone();
    if numbers.below(8) == 0 {
        return bytes;
    }
    for _ in 0..=numbers.below(5) {
        let other = &inputs[numbers.below(inputs.len())];
        change(&mut bytes, other, numbers);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, other: &[u8], numbers: &mut Numbers) {
    let at = numbers.below(bytes.len() + 1);
    let end = bytes.len().min(at + numbers.below(60));
    match numbers.below(8) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << numbers.below(8);
            }
        }
        1 => drop(bytes.drain(at..end)),
        2 => bytes.truncate(at),
        3 => {
            let piece = PIECES[numbers.below(PIECES.len())];
            bytes.splice(at..at, piece.bytes());
        }
        4 => {
            let piece = bytes[at..end].repeat(1 + numbers.below(9));
            bytes.splice(at..at, piece);
        }
        5 => {
            let range = value(bytes, at);
            let piece = PIECES[numbers.below(PIECES.len())];
            bytes.splice(range, piece.bytes());
        }
        6 => {
            let (to, from) = (value(bytes, at), value(other, numbers.below(other.len() + 1)));
            bytes.splice(to, other[from].iter().copied());
        }
        _ => {
            let from = value(bytes, numbers.below(bytes.len() + 1));
            let piece = bytes[from].to_vec();
            bytes.splice(at..at, piece);
        }
    }
}

/// Returns where the value around a byte begins and ends: what stands between separators.
fn value(bytes: &[u8], at: usize) -> std::ops::Range<usize> {
    let is_separator = |byte: &u8| b"\n,:={}[]?&".contains(byte);
    let at = at.min(bytes.len());
    let start = bytes[..at].iter().rposition(is_separator).map_or(0, |at| at + 1);
    let end = bytes[at..].iter().position(is_separator).map_or(bytes.len(), |end| at + end);
    start..end
}
