//! Wrapped keys: the text of a row.

use agent_core::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use crate::cipher::{Cipher, Purpose};

/// Number of the stored form, in each row and in what each is bound to.
const FORMAT: &str = "1";

/// What a wrapped key is bound to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound<'a> {
    pub(crate) tenant: &'a str,
    /// Kind of the row.
    pub(crate) kind: &'static str,
    /// Id of the session; empty for a row of a tenant.
    pub(crate) session: &'a str,
}

impl Bound<'_> {
    /// Returns the name of the row: ids alone.
    pub(crate) fn row(&self) -> String {
        let Self { tenant, kind, session } = self;
        if session.is_empty() { format!("{kind}/{tenant}") } else { format!("{kind}/{tenant}/{session}") }
    }

    fn aad(&self) -> [&[u8]; 4] {
        [FORMAT, self.tenant, self.kind, self.session].map(str::as_bytes)
    }
}

/// Returns the text of a row: `<format>.<id of the wrapping key>.<sealed key>`.
pub(crate) fn wrap(by: &Cipher, bound: Bound<'_>, plain: &[u8]) -> String {
    let sealed = by.seal(Purpose::Key, &bound.aad(), plain);
    format!("{FORMAT}.{}.{}", by.key_id(), URL_SAFE_NO_PAD.encode(sealed))
}

/// A row's text, taken apart.
#[derive(Debug)]
pub(crate) struct Wrapped<'a> {
    /// Id of the key that wraps it.
    pub(crate) by: &'a str,
    sealed: &'a str,
    bound: Bound<'a>,
}

impl<'a> Wrapped<'a> {
    pub(crate) fn parse(text: &'a str, bound: Bound<'a>) -> Result<Self> {
        let mut parts = text.splitn(3, '.');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(FORMAT), Some(by), Some(sealed)) => Ok(Self { by, sealed, bound }),
            (Some(format), Some(_), Some(_)) if format.parse::<u32>().is_ok() => {
                Err(Error::unsupported(format!(
                    "key row {} has format {format}, and this version reads {FORMAT}; update the library",
                    bound.row()
                )))
            }
            _ => Err(damaged(bound)),
        }
    }

    /// Returns the key that is wrapped.
    pub(crate) fn open(&self, by: &Cipher) -> Result<Zeroizing<Vec<u8>>> {
        let sealed = URL_SAFE_NO_PAD.decode(self.sealed).ok();
        let plain = sealed.and_then(|sealed| by.open(Purpose::Key, &self.bound.aad(), &sealed));
        plain.map(Zeroizing::new).ok_or_else(|| damaged(self.bound))
    }
}

pub(crate) fn damaged(bound: Bound<'_>) -> Error {
    Error::corrupt(format!(
        "key row {} holds no key that was wrapped for it; restore the row from a backup",
        bound.row()
    ))
}
