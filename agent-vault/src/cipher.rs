//! The cipher: what is sealed under one secret, so that the same sealed twice has the same bytes.

use std::fmt;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{AeadInOut, KeyInit, XChaCha20Poly1305, XNonce};
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Number of bytes of a secret, and of each key that is derived from it.
pub(crate) const SECRET_BYTES: usize = 32;
/// Number of bytes of a nonce.
const NONCE_BYTES: usize = 24;
/// Number of bytes by which a sealed text is longer than the plain one: its nonce and its tag.
pub(crate) const SEALED_BYTES: usize = NONCE_BYTES + 16;

/// A secret, or a key that is derived from one.
pub(crate) type Secret = Zeroizing<[u8; SECRET_BYTES]>;

/// What is sealed. Each purpose has keys of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Payload of an event.
    Content,
    /// One word of a record.
    Word,
    /// Chunk of a blob.
    Blob,
    /// Another key, which is wrapped.
    Key,
}

/// The keys of one purpose.
struct Pair {
    cipher: Secret,
    nonce: Secret,
}

/// Cipher of one secret of 32 bytes.
///
/// XChaCha20-Poly1305, whose nonce is the start of an HMAC of all that is sealed: two different texts have two nonces, and the
/// same text has the same bytes whenever it is sealed. Keys are derived by HKDF-SHA-256, and overwritten when the cipher is
/// dropped.
pub(crate) struct Cipher {
    content: Pair,
    word: Pair,
    blob: Pair,
    key: Pair,
    mac: Secret,
    id: String,
}

impl Cipher {
    /// Creates the cipher of a secret, which must be random.
    pub(crate) fn new(secret: &[u8; SECRET_BYTES]) -> Self {
        let keys = Hkdf::<Sha256>::new(None, secret);
        let pair = |purpose: &str| Pair {
            cipher: derived(&keys, &[purpose, "cipher"]),
            nonce: derived(&keys, &[purpose, "nonce"]),
        };
        let id = mac(&derived(&keys, &["id"]), &encoded(&[b"key id"]), &[]);
        Self {
            content: pair("content"),
            word: pair("word"),
            blob: pair("blob"),
            key: pair("key"),
            mac: derived(&keys, &["mac"]),
            id: id.iter().take(8).map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// Returns the id of the secret: 16 hexadecimal digits, which reveal nothing of it.
    pub(crate) fn key_id(&self) -> &str {
        &self.id
    }

    /// Seals a text, bound to `aad`: `nonce ++ ciphertext ++ tag`, [`SEALED_BYTES`] longer than the text.
    pub(crate) fn seal(&self, purpose: Purpose, aad: &[&[u8]], plain: &[u8]) -> Vec<u8> {
        let (pair, aad) = (self.pair(purpose), encoded(aad));
        let nonce = nonce(&pair.nonce, &aad, plain);
        let mut sealed = Vec::with_capacity(plain.len() + SEALED_BYTES);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let (_, text) = sealed.split_at_mut(NONCE_BYTES);
        let tag = pair.cipher().encrypt_inout_detached(&XNonce::from(nonce), &aad, text.into());
        #[allow(clippy::expect_used, reason = "it fails for more than 256 GiB only")]
        sealed.extend_from_slice(&tag.expect("a text in memory is not too long"));
        sealed
    }

    /// Opens what was sealed for the same purpose with the same `aad`. `None` if it does not fit: another secret, another `aad`,
    /// or changed bytes.
    pub(crate) fn open(&self, purpose: Purpose, aad: &[&[u8]], sealed: &[u8]) -> Option<Vec<u8>> {
        let (pair, aad) = (self.pair(purpose), encoded(aad));
        let (found, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let plain = pair.cipher().decrypt(&XNonce::from(*found), Payload { msg: sealed, aad: &aad }).ok()?;
        // Of one text there is one sealed form: whoever has the cipher's key alone makes no other.
        let fits: bool = nonce(&pair.nonce, &aad, &plain).ct_eq(found).into();
        fits.then_some(plain)
    }

    /// Returns the HMAC-SHA-256 of a list of parts, under a key of its own. Two lists have two values.
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        mac(&self.mac, &encoded(parts), &[])
    }

    fn pair(&self, purpose: Purpose) -> &Pair {
        match purpose {
            Purpose::Content => &self.content,
            Purpose::Word => &self.word,
            Purpose::Blob => &self.blob,
            Purpose::Key => &self.key,
        }
    }
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cipher").field("key_id", &self.id).finish_non_exhaustive()
    }
}

impl Pair {
    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.cipher).into())
    }
}

/// Returns the key of a name. The names are part of the stored form.
fn derived(keys: &Hkdf<Sha256>, name: &[&str]) -> Secret {
    let mut key = Secret::default();
    let name = [&["agent-vault 1"], name].concat().join(" ");
    #[allow(clippy::expect_used, reason = "it fails for more than 8,160 bytes only")]
    keys.expand(name.as_bytes(), &mut *key).expect("a key is short enough");
    key
}

/// Returns the bytes of a list of parts, each after its length in 8 bytes, so that two lists never have the same.
fn encoded(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| 8 + part.len()).sum());
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

fn nonce(key: &Secret, aad: &[u8], plain: &[u8]) -> [u8; NONCE_BYTES] {
    let length = (aad.len() as u64).to_be_bytes();
    let whole = mac(key, &length, &[aad, plain]);
    let mut nonce = [0; NONCE_BYTES];
    nonce.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
    nonce
}

fn mac(key: &Secret, first: &[u8], rest: &[&[u8]]) -> [u8; 32] {
    #[allow(clippy::expect_used, reason = "HMAC takes keys of every length")]
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&**key).expect("HMAC takes every key");
    mac.update(first);
    rest.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const PURPOSES: [Purpose; 4] = [Purpose::Content, Purpose::Word, Purpose::Blob, Purpose::Key];

    fn cipher() -> Cipher {
        Cipher::new(&std::array::from_fn(|n| n as u8))
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Written once; what is stored depends on these bytes.
    #[test]
    fn the_sealed_form_never_changes() {
        let cipher = cipher();
        let sealed = PURPOSES.map(|purpose| hex(&cipher.seal(purpose, &[b"acme", b"7"], b"Hello")));
        assert_eq!(
            sealed,
            [
                "1a6d3bb98e2c60bc969dabf65207931dc3835bbbaf31383941dc5950d6bb675aa197238d9095aed9d47edbb01d",
                "5a36f99a1c865e4ffe853b66f618aaafb6fb004e554509e8df10be59edba035edc0c046d6556f876fdd6bd1c33",
                "6d17c5502037996b1203552b1214f26bddc44f624ebf25414cd9e7b5ff1e2447b6ce46142525039f6b273b8dfc",
                "befe31fd259bb598c1f3d2e6b5b9123854d9efc182617e5e58759af14947f739f13b0ced692778525a2cdda4db",
            ]
        );
        assert_eq!(
            hex(&cipher.mac(&[b"key", b"value"])),
            "3cc3d97743ac677c9279acfa441b938f514412dee1c622b2af2c60b62dea395d"
        );
        assert_eq!(cipher.key_id(), "efc981d1c9d3ed9f");
    }

    #[test]
    fn what_is_sealed_is_opened_by_the_same_cipher_purpose_and_aad_alone() {
        let (cipher, other) = (cipher(), Cipher::new(&[1; 32]));
        for plain in [&b""[..], b"x", &[7; 100_000]] {
            for purpose in PURPOSES {
                let sealed = cipher.seal(purpose, &[b"acme"], plain);
                assert_eq!(sealed.len(), plain.len() + SEALED_BYTES);
                assert_eq!(cipher.open(purpose, &[b"acme"], &sealed).as_deref(), Some(plain));
                assert_eq!(other.open(purpose, &[b"acme"], &sealed), None);
                assert_eq!(cipher.open(purpose, &[b"umbra"], &sealed), None);
                for wrong in PURPOSES.into_iter().filter(|it| *it != purpose) {
                    assert_eq!(cipher.open(wrong, &[b"acme"], &sealed), None, "{purpose:?} as {wrong:?}");
                }
            }
        }
    }

    #[test]
    fn the_same_sealed_twice_has_the_same_bytes() {
        let seal = || cipher().seal(Purpose::Content, &[b"acme", b"7"], b"Hello");
        assert_eq!(seal(), seal());
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let (cipher, aad) = (cipher(), *b"acme, session 7");
        let sealed = cipher.seal(Purpose::Content, &[&aad], b"Hello, whoever reads this");
        for bit in 0..8 * sealed.len() {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(cipher.open(Purpose::Content, &[&aad], &changed), None, "bit {bit}");
        }
        for bit in 0..8 * aad.len() {
            let mut changed = aad;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(cipher.open(Purpose::Content, &[&changed], &sealed), None, "bit {bit} of the aad");
        }
        for length in 0..sealed.len() {
            assert_eq!(cipher.open(Purpose::Content, &[&aad], &sealed[..length]), None, "{length} bytes");
        }
        assert_eq!(cipher.open(Purpose::Content, &[&aad], &[&sealed[..], b"x"].concat()), None);
    }

    #[test]
    fn parts_do_not_move_between_places() {
        let cipher = cipher();
        let sealed = cipher.seal(Purpose::Content, &[b"ab", b"c"], b"Hello");
        let others: [&[&[u8]]; 6] =
            [&[b"a", b"bc"], &[b"abc"], &[b"c", b"ab"], &[b"ab", b"c", b""], &[b"", b"ab", b"c"], &[]];
        for other in others {
            assert_eq!(cipher.open(Purpose::Content, other, &sealed), None, "{other:?}");
            assert_ne!(cipher.mac(other), cipher.mac(&[b"ab", b"c"]), "{other:?}");
        }
        // Nor between what is bound and what is sealed.
        let nonce = |aad: &[&[u8]], plain| cipher.seal(Purpose::Content, aad, plain)[..NONCE_BYTES].to_vec();
        assert_ne!(nonce(&[b"ab"], b"c"), nonce(&[b"a"], b"bc"));
    }

    /// A nonce that was chosen, and not computed, is refused, although the cipher itself would take it.
    #[test]
    fn a_chosen_nonce_is_refused() {
        let (cipher, aad) = (cipher(), encoded(&[b"acme"]));
        let nonce = [9; NONCE_BYTES];
        let payload = Payload { msg: b"Hello", aad: &aad };
        let sealed = cipher.content.cipher().encrypt(&XNonce::from(nonce), payload).unwrap();
        let forged = [&nonce[..], &sealed].concat();
        assert_eq!(cipher.open(Purpose::Content, &[b"acme"], &forged), None);
    }

    #[test]
    fn the_purposes_share_no_key_and_no_nonce() {
        let cipher = cipher();
        let nonces: HashSet<_> =
            PURPOSES.iter().map(|it| cipher.seal(*it, &[], b"Hello")[..NONCE_BYTES].to_vec()).collect();
        assert_eq!(nonces.len(), PURPOSES.len());
        let pairs = PURPOSES.map(|it| cipher.pair(it));
        let keys: HashSet<_> =
            pairs.iter().flat_map(|it| [*it.cipher, *it.nonce]).chain([*cipher.mac]).collect();
        assert_eq!(keys.len(), 2 * PURPOSES.len() + 1);
    }

    /// Short texts in few places, of which many are alike.
    fn nonces_are_those_of_one_text(seals: usize) {
        let (cipher, mut seen) = (cipher(), HashSet::new());
        for n in 0..seals {
            let (place, text) = ((n % 7).to_be_bytes(), (n / 7).to_string());
            let sealed = cipher.seal(Purpose::Word, &[b"acme", &place], text.as_bytes());
            assert!(seen.insert(sealed[..NONCE_BYTES].to_vec()), "a nonce of two texts after {n}");
        }
    }

    #[test]
    fn no_nonce_of_a_hundred_thousand_is_used_for_two_texts() {
        nonces_are_those_of_one_text(100_000);
    }

    #[test]
    #[ignore = "takes half a minute"]
    fn no_nonce_of_a_million_is_used_for_two_texts() {
        nonces_are_those_of_one_text(1_000_000);
    }

    #[test]
    fn debug_shows_the_id_and_no_key() {
        let (cipher, other) = (cipher(), Cipher::new(&[1; 32]));
        assert_eq!(format!("{cipher:?}"), format!("Cipher {{ key_id: \"{}\", .. }}", cipher.key_id()));
        assert_ne!(cipher.key_id(), other.key_id());
    }
}
