//! Redaction of content that is stored as bytes: media and blobs.

use agent_core::event::{Media, MediaSource};
use agent_core::store::BlobStream;
use agent_core::{BlobName, Error, Result, SessionId};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use crate::secrets::patterns::Mark;
use crate::secrets::tenant::Secrets;

/// Content of which the end is held back, because a value may continue in the next piece.
#[derive(Debug, Default)]
struct Overlap {
    held: Vec<u8>,
    /// Number of bytes of it that were returned already, and are kept for what is found behind them.
    returned: usize,
}

impl Overlap {
    /// Takes the next piece, or the end of the content; returns what comes before the held part, with values replaced.
    /// Calls `found` for each value.
    fn push(
        &mut self,
        secrets: &Secrets,
        piece: Option<&[u8]>,
        mut found: impl FnMut(Mark<'_>) -> Result<()>,
    ) -> Result<Bytes> {
        let known = secrets.given();
        self.held.extend_from_slice(piece.unwrap_or_default());
        // The part that is held back is searched again: so that this happens once for each such length, not for each piece.
        if piece.is_some() && self.held.len() - self.returned < 2 * known.longest() {
            return Ok(Bytes::new());
        }
        // A value that begins before this place is there to its end.
        let until = match piece {
            Some(_) => self.held.len().saturating_sub(known.longest().saturating_sub(1)),
            None => self.held.len(),
        };
        let (mut out, mut done) = (Vec::with_capacity(until), self.returned);
        let all = known.find_bytes(self.returned, &self.held);
        for (at, mark) in all.into_iter().take_while(|(at, _)| at.start < until) {
            found(mark)?;
            out.extend_from_slice(&self.held[done..at.start]);
            out.extend_from_slice(mark.to_string().as_bytes());
            done = at.end;
        }
        let until = until.max(done);
        out.extend_from_slice(&self.held[done..until]);
        self.returned = until.min(known.context());
        self.held.drain(..until - self.returned);
        Ok(out.into())
    }
}

impl Secrets {
    /// Returns bytes with the name of the secret in place of each value; `None` if there is none.
    pub fn redact_bytes(&self, bytes: &[u8]) -> Option<Bytes> {
        let is_found = !self.given().find_bytes(0, bytes).is_empty();
        if !is_found {
            return None;
        }
        Overlap { held: bytes.to_vec(), returned: 0 }.push(self, None, |_| Ok(())).ok()
    }

    /// Redacts the inline bytes of a medium, whatever its type says. Returns whether it held a value.
    pub fn redact_media(&self, media: &mut Media) -> bool {
        let MediaSource::Inline(bytes) = &media.source else { return false };
        let Some(redacted) = self.redact_bytes(bytes) else { return false };
        media.source = MediaSource::Inline((&*redacted).into());
        true
    }

    /// Returns the content with the name of the secret in place of each value, also of one that is divided
    /// between pieces. Holds up to twice as much of the content as the longest value has if each of its characters is escaped,
    /// and a piece.
    pub fn redact_stream(&self, content: BlobStream) -> BlobStream {
        changed(content, self.clone(), |secrets, overlap, piece| overlap.push(secrets, piece, |_| Ok(())))
    }

    /// Returns the unchanged content, which ends with an error in place of a value.
    pub(super) fn guarded(&self, session: SessionId, blob: BlobName, content: BlobStream) -> BlobStream {
        changed(content, self.clone(), move |secrets, overlap, piece| {
            let refuse = |mark: Mark<'_>| {
                Err(Error::invalid(format!(
                    "blob {blob} of session {session} holds {}; redact it before its hash is computed, as \
                     Conversation::put_media_stream does",
                    mark.described()
                )))
            };
            overlap.push(secrets, piece, refuse)
        })
    }
}

/// Returns the content as `change` returns it piece by piece; it is called with `None` at the end.
fn changed(
    content: BlobStream,
    secrets: Secrets,
    mut change: impl FnMut(&Secrets, &mut Overlap, Option<&[u8]>) -> Result<Bytes> + Send + 'static,
) -> BlobStream {
    let mut overlap = Overlap::default();
    let pieces = content.map(|piece| piece.map(Some)).chain(stream::iter([Ok(None)]));
    let changed = pieces.map(move |piece| change(&secrets, &mut overlap, piece?.as_deref()));
    changed.try_filter(|piece| std::future::ready(!piece.is_empty())).boxed()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeMap;

    use agent_core::WorkspaceId;
    use futures::FutureExt;
    use proptest::prelude::*;

    use super::*;
    use crate::secrets::{Secret, SecretName};

    fn secrets() -> Secrets {
        let values =
            [("a", "correct horse"), ("b", "correct horse battery"), ("c", "\u{1f511}-key-\u{1f511}")];
        let values = values.map(|(name, value)| (name.parse().unwrap(), Secret::new(value).unwrap()));
        let names: Vec<SecretName> = values.iter().map(|(name, _)| Clone::clone(name)).collect();
        let secrets = Secrets::new(BTreeMap::from(values));
        for name in &names {
            secrets.reveal(WorkspaceId::DEFAULT, name).now_or_never().unwrap().unwrap();
        }
        secrets
    }

    fn pieces(text: &[u8], size: usize) -> BlobStream {
        let pieces: Vec<_> = text.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        stream::iter(pieces).boxed()
    }

    fn read(content: BlobStream) -> Result<Vec<u8>> {
        let pieces: Vec<_> = content.try_collect::<Vec<_>>().now_or_never().unwrap()?;
        Ok(pieces.concat())
    }

    #[test]
    fn content_of_each_kind_with_a_value_is_refused() {
        let (secrets, session) = (secrets(), agent_core::clock::Effects::default().new_session_id());
        let guard =
            |content: &[u8]| read(secrets.guarded(session, BlobName::of(content), pieces(content, 7)));
        for content in [&b"\x89PNG\r\n\0correct horse"[..], b"this is the correct horse"] {
            let error = guard(content).unwrap_err().to_string();
            assert!(error.contains("secret a") && !error.contains("correct horse"), "{error}");
        }
        let long = [vec![b'x'; 30_000], b"correct horse battery".to_vec()].concat();
        assert!(guard(&long).is_err());
        assert_eq!(guard(&long[..long.len() - 9]).unwrap(), &long[..long.len() - 9], "{}", "correct hor");
        assert_eq!(guard(b"").unwrap(), b"");
    }

    /// What is held back is searched again once for each such length, not for each piece.
    #[test]
    fn small_pieces_are_searched_together() {
        let (secrets, text) = (secrets(), "correct horses ".repeat(20_000));
        let (longest, content) = (secrets.given().longest(), pieces(text.as_bytes(), 16));
        let shown: Vec<_> = secrets.redact_stream(content).try_collect().now_or_never().unwrap().unwrap();
        assert!(shown.len() <= text.len() / longest + 2, "{} searches", shown.len());
        assert_eq!(shown.concat(), secrets.redact(&text).as_bytes());
    }

    /// A key that is divided between pieces is redacted, wherever it stands, and one within a longer word is none.
    #[test]
    fn patterns_are_redacted_in_divided_content() {
        let (secrets, key) = (secrets().with_patterns(), "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
        let escaped = key.replace('_', r"\u005f");
        let long = format!("eyJhbGciOiJI.eyJh.{}", "b".repeat(12_000));
        let unit = format!("{key} x{key} {} {escaped}, {long} ", "a".repeat(977));
        let text = unit.repeat(3_000_000 / unit.len());
        let whole = secrets.redact(&text).into_owned();
        assert_eq!(whole.matches("(secret: GitHub token)").count(), 2 * (3_000_000 / unit.len()));
        assert_eq!(whole.matches("(secret: JWT)").count(), 3_000_000 / unit.len());
        for size in [4096, 1_000_003] {
            let divided = read(secrets.redact_stream(pieces(text.as_bytes(), size))).unwrap();
            assert!(divided == whole.as_bytes(), "{size}");
        }
        let session = agent_core::clock::Effects::default().new_session_id();
        let content = pieces(key.as_bytes(), 7);
        let error = read(secrets.guarded(session, BlobName::of(b""), content)).unwrap_err().to_string();
        assert!(error.contains("looks like a secret of the kind GitHub token"), "{error}");
    }

    proptest! {
        /// However content is divided, it is redacted as a whole text is.
        #[test]
        fn division_of_content_does_not_matter(
            parts in proptest::collection::vec(
                prop_oneof![Just("correct horse".to_owned()), Just("correct horse battery".to_owned()),
                    Just("\u{1f511}-key-\u{1f511}".to_owned()), Just("correct ".to_owned()),
                    Just(r"\u0063orrect\\u0020horse".to_owned()), Just(r"\ud83d\udd11-key-".to_owned()), ".{0,12}"],
                0..300,
            ),
            size in 1_usize..200,
        ) {
            let (secrets, text) = (secrets(), parts.concat());
            let whole = secrets.redact(&text).into_owned();
            let divided = read(secrets.redact_stream(pieces(text.as_bytes(), size))).unwrap();
            prop_assert_eq!(String::from_utf8(divided).unwrap(), whole.clone());
            let bytes = secrets.redact_bytes(text.as_bytes()).map_or(text, |bytes| String::from_utf8(bytes.to_vec()).unwrap());
            prop_assert_eq!(bytes, whole);
        }
    }
}
