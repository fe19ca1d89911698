//! Words: the texts of a record, each sealed by itself.

use std::collections::BTreeMap;

use crate::base::sealed::WORD;
use crate::base::{Error, RawFields, RawJson, Result, SessionId};
use crate::sealing::{Sealed, Sealing};

/// Seals or opens the words of one session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a> {
    pub(super) sealing: &'a dyn Sealing,
    session: SessionId,
    pub(super) opens: bool,
}

impl<'a> Words<'a> {
    pub(super) fn to_seal(sealing: &'a dyn Sealing, session: SessionId) -> Self {
        Self { sealing, session, opens: false }
    }

    pub(super) fn to_open(sealing: &'a dyn Sealing, session: SessionId) -> Self {
        Self { sealing, session, opens: true }
    }

    pub(super) fn corrupt(&self, what: &str) -> Error {
        Error::corrupt(format!("session {}: {what}", self.session))
    }

    /// Seals or opens a word. `kind` says what it is a word of; an empty text stays empty.
    pub(super) fn word(&self, kind: &str, text: &mut String) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let session = self.session.as_uuid();
        let bound = [kind.as_bytes(), session.as_bytes()];
        if !self.opens {
            let sealed = self.sealing.seal(Sealed::Word, &bound, text.as_bytes());
            *text = format!("{WORD}{sealed}");
            return Ok(());
        }
        let Some(sealed) = text.strip_prefix(WORD) else {
            return Err(
                self.corrupt(&format!("its {kind} is not sealed, as it must be in an encrypted store"))
            );
        };
        let plain = self.sealing.open(Sealed::Word, &bound, sealed);
        let plain =
            plain.map_err(|error| error.about(format_args!("the {kind} of session {}", self.session)))?;
        *text = String::from_utf8(plain).map_err(|_| self.corrupt(&format!("its {kind} is no text")))?;
        Ok(())
    }

    pub(super) fn optional(&self, kind: &str, text: &mut Option<String>) -> Result<()> {
        text.as_mut().map_or(Ok(()), |text| self.word(kind, text))
    }

    /// Seals or opens JSON; `null`, which removes a value, stays.
    fn json(&self, kind: &str, value: &mut RawJson) -> Result<()> {
        if value.get() == "null" {
            return Ok(());
        }
        if self.opens {
            let mut text: String = value
                .to()
                .map_err(|source| self.corrupt(&format!("its {kind} is not sealed")).with_source(source))?;
            self.word(kind, &mut text)?;
            *value = RawJson::parse(&text)?;
        } else {
            let mut text = value.get().to_owned();
            self.word(kind, &mut text)?;
            *value = RawJson::sure(&text);
        }
        Ok(())
    }

    /// Seals or opens names and values of fields.
    pub(super) fn fields(&self, kind: &str, fields: &mut RawFields) -> Result<()> {
        let mut done = RawFields::new();
        for (name, value) in fields.iter() {
            let (mut name, mut value) = (name.to_owned(), value.clone());
            self.word(&format!("{kind} name"), &mut name)?;
            self.json(kind, &mut value)?;
            done.push(&name, value);
        }
        *fields = done;
        Ok(())
    }

    /// Seals or opens the keys of a map but those that `stays` names, and each value by `each`.
    pub(super) fn map<V>(
        &self,
        kind: &str,
        stays: impl Fn(&str) -> bool,
        map: &mut BTreeMap<String, V>,
        mut each: impl FnMut(&mut V) -> Result<()>,
    ) -> Result<()> {
        for (mut key, mut value) in std::mem::take(map) {
            if !stays(&key) {
                self.word(&format!("{kind} name"), &mut key)?;
            }
            each(&mut value)?;
            map.insert(key, value);
        }
        Ok(())
    }
}
