//! MessagePack as JSON, value by value. Nothing is made of a value but text, and what is not asked for is skipped.

use agent_core::json::RawJson;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmp::Marker;

/// Maximum depth of values.
const DEPTH_MAX: usize = 64;
/// Maximum number of bytes of the JSON of a value.
const JSON_MAX_BYTES: usize = 16 << 20;

/// Value at the beginning of the bytes that are left, as far as its head tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Head<'b> {
    Null,
    Bool(bool),
    Int(i64),
    /// Number beyond those of `i64`.
    Large(u64),
    Float(f64),
    Text(&'b [u8]),
    Bytes(&'b [u8]),
    /// Number of elements, which follow.
    List(u32),
    /// Number of pairs, which follow.
    Map(u32),
    Extension(i8, &'b [u8]),
}

/// Bytes that are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'b>(pub(crate) &'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads a number of at most eight bytes.
    fn number(&mut self, bytes: usize) -> Option<u64> {
        Some(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn sized(&mut self, bytes: usize) -> Option<&'b [u8]> {
        let size = usize::try_from(self.number(bytes)?).ok()?;
        self.take(size)
    }

    fn count(&mut self, bytes: usize) -> Option<u32> {
        u32::try_from(self.number(bytes)?).ok()
    }

    fn signed(&mut self, bytes: usize) -> Option<Head<'b>> {
        let unused = 64 - 8 * u32::try_from(bytes).ok()?;
        // The sign is that of the highest bit that is there.
        Some(Head::Int((self.number(bytes)? << unused).cast_signed() >> unused))
    }

    fn unsigned(&mut self, bytes: usize) -> Option<Head<'b>> {
        let number = self.number(bytes)?;
        Some(i64::try_from(number).map_or(Head::Large(number), Head::Int))
    }

    fn extension(&mut self, size: usize) -> Option<Head<'b>> {
        let kind = i8::from_be_bytes([*self.take(1)?.first()?]);
        Some(Head::Extension(kind, self.take(size)?))
    }

    fn sized_extension(&mut self, bytes: usize) -> Option<Head<'b>> {
        let size = usize::try_from(self.number(bytes)?).ok()?;
        self.extension(size)
    }

    /// Reads the head of a value; `None` if the bytes end before it does.
    pub(crate) fn head(&mut self) -> Option<Head<'b>> {
        Some(match Marker::from_u8(*self.take(1)?.first()?) {
            Marker::Null | Marker::Reserved => Head::Null,
            Marker::True => Head::Bool(true),
            Marker::False => Head::Bool(false),
            Marker::FixPos(number) => Head::Int(i64::from(number)),
            Marker::FixNeg(number) => Head::Int(i64::from(number)),
            Marker::U8 => self.unsigned(1)?,
            Marker::U16 => self.unsigned(2)?,
            Marker::U32 => self.unsigned(4)?,
            Marker::U64 => self.unsigned(8)?,
            Marker::I8 => self.signed(1)?,
            Marker::I16 => self.signed(2)?,
            Marker::I32 => self.signed(4)?,
            Marker::I64 => self.signed(8)?,
            Marker::F32 => Head::Float(f64::from(f32::from_bits(self.count(4)?))),
            Marker::F64 => Head::Float(f64::from_bits(self.number(8)?)),
            Marker::FixStr(size) => Head::Text(self.take(usize::from(size))?),
            Marker::Str8 => Head::Text(self.sized(1)?),
            Marker::Str16 => Head::Text(self.sized(2)?),
            Marker::Str32 => Head::Text(self.sized(4)?),
            Marker::Bin8 => Head::Bytes(self.sized(1)?),
            Marker::Bin16 => Head::Bytes(self.sized(2)?),
            Marker::Bin32 => Head::Bytes(self.sized(4)?),
            Marker::FixArray(count) => Head::List(u32::from(count)),
            Marker::Array16 => Head::List(self.count(2)?),
            Marker::Array32 => Head::List(self.count(4)?),
            Marker::FixMap(count) => Head::Map(u32::from(count)),
            Marker::Map16 => Head::Map(self.count(2)?),
            Marker::Map32 => Head::Map(self.count(4)?),
            Marker::FixExt1 => self.extension(1)?,
            Marker::FixExt2 => self.extension(2)?,
            Marker::FixExt4 => self.extension(4)?,
            Marker::FixExt8 => self.extension(8)?,
            Marker::FixExt16 => self.extension(16)?,
            Marker::Ext8 => self.sized_extension(1)?,
            Marker::Ext16 => self.sized_extension(2)?,
            Marker::Ext32 => self.sized_extension(4)?,
        })
    }

    /// Skips a value. Values in it are counted, not entered, so that no depth is too deep.
    pub(crate) fn skip(&mut self) -> Option<()> {
        let mut left = 1_u64;
        while left > 0 {
            left -= 1;
            left += match self.head()? {
                Head::List(count) => u64::from(count),
                Head::Map(count) => 2 * u64::from(count),
                _ => 0,
            };
        }
        Some(())
    }

    /// Reads a text.
    pub(crate) fn text(&mut self) -> Option<&'b str> {
        match self.head()? {
            Head::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Reads a value as JSON; `None` if it is not whole, too deep or too large. Bytes are in base64, and objects of extensions are `null`.
    pub(crate) fn json(&mut self) -> Option<RawJson> {
        let mut text = String::new();
        self.write(&mut text, 0)?;
        RawJson::parse(&text).ok()
    }

    fn write(&mut self, out: &mut String, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX || out.len() > JSON_MAX_BYTES {
            return None;
        }
        match self.head()? {
            Head::Null | Head::Extension(..) => out.push_str("null"),
            Head::Bool(is_true) => out.push_str(if is_true { "true" } else { "false" }),
            Head::Int(number) => out.push_str(&number.to_string()),
            Head::Large(number) => out.push_str(&number.to_string()),
            Head::Float(number) if number.is_finite() => out.push_str(RawJson::sure(&number).get()),
            Head::Float(_) => out.push_str("null"),
            Head::Text(bytes) => out.push_str(RawJson::sure(&String::from_utf8_lossy(bytes)).get()),
            Head::Bytes(bytes) => out.push_str(RawJson::sure(&STANDARD.encode(bytes)).get()),
            Head::List(count) => {
                out.push('[');
                for at in 0..count {
                    if at > 0 {
                        out.push(',');
                    }
                    self.write(out, depth + 1)?;
                }
                out.push(']');
            }
            Head::Map(count) => {
                out.push('{');
                for at in 0..count {
                    if at > 0 {
                        out.push(',');
                    }
                    let mut key = String::new();
                    self.write(&mut key, DEPTH_MAX)?;
                    // A key of JSON is a text.
                    if key.starts_with('"') {
                        out.push_str(&key);
                    } else {
                        out.push_str(RawJson::sure(&key).get());
                    }
                    out.push(':');
                    self.write(out, depth + 1)?;
                }
                out.push('}');
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_json() {
        let bytes = [
            0x84, 0xa1, b'a', 0x93, 0xc0, 0xc3, 0xff, 0x01, 0xd1, 0xff, 0x00, 0xa1, b'b', 0xc4, 2, 1, 2,
            0xa1, b'c', 0xcb, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0,
        ];
        let json = Reader(&bytes).json();
        assert_eq!(
            json.as_ref().map(RawJson::get),
            Some(r#"{"a":[null,true,-1],"1":-256,"b":"AQI=","c":null}"#)
        );
        assert_eq!(Reader(&bytes).skip(), Some(()));
    }

    #[test]
    fn what_is_cut_or_deep_or_says_that_it_is_large_is_no_value() {
        let bytes = [0x92, 0xa2, b'a', b'b', 0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(Reader(&bytes).json().as_ref().map(RawJson::get), Some(r#"["ab",18446744073709551615]"#));
        for end in 0..bytes.len() {
            assert_eq!(Reader(&bytes[..end]).json(), None);
            assert_eq!(Reader(&bytes[..end]).skip(), None);
        }
        assert_eq!(Reader(&[0xdd, 0xff, 0xff, 0xff, 0xff, 0xc0]).json(), None);
        assert_eq!(Reader(&[0xdd, 0xff, 0xff, 0xff, 0xff, 0xc0]).skip(), None);
        let mut deep = vec![0x91; 1_000_000];
        assert_eq!(Reader(&deep).json(), None);
        deep.push(0xc0);
        assert_eq!(Reader(&deep).json(), None);
        assert_eq!(Reader(&deep).skip(), Some(()));
    }
}
