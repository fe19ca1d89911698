//! Typed ids, checked once, when they are parsed or made.
//!
//! No id from outside can escape a store's root or alias another id: the ids that become paths or keys are UUIDs and
//! short lower-case [names](TenantId); a [`DeviceId`] is any text, and is always hashed before it becomes part of a
//! path.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::base::text::{ParseError, check_text, quoted, text_serde};

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $noun:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID that was made elsewhere.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// Returns the UUID.
            pub const fn as_uuid(&self) -> &Uuid {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ParseError;

            /// Parses the hyphenated form, in lower or upper case. Refuses every other spelling of a UUID, so that
            /// each id has one spelling.
            fn from_str(text: &str) -> Result<Self, ParseError> {
                parse_uuid($noun, text).map(Self)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        text_serde!($name);
    };
}

macro_rules! display_uuid {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }
    };
}

uuid_id! {
    /// Id of a workspace. The well-known workspace [`WorkspaceId::DEFAULT`] prints and parses as `default`.
    ///
    /// ```
    /// use agent_core::WorkspaceId;
    ///
    /// assert_eq!("default".parse::<WorkspaceId>()?, WorkspaceId::DEFAULT);
    /// assert!("../../etc".parse::<WorkspaceId>().is_err());
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    WorkspaceId, "workspace id"
}

impl WorkspaceId {
    /// Id of the workspace of a single-user host: the nil UUID.
    pub const DEFAULT: Self = Self(Uuid::nil());
}

impl fmt::Display for WorkspaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::DEFAULT { f.pad("default") } else { self.0.hyphenated().fmt(f) }
    }
}

uuid_id! {
    /// Id of a session. Never used again, even after the session was purged.
    ///
    /// ```
    /// use agent_core::SessionId;
    ///
    /// let session: SessionId = "019c60d9-9c41-715c-8289-ec2d0a9167ec".parse()?;
    /// assert_eq!(session.to_string(), "019c60d9-9c41-715c-8289-ec2d0a9167ec");
    /// assert_eq!(SessionId::from_uuid(*session.as_uuid()), session);
    /// // Each id has one spelling.
    /// assert!("019c60d99c41715c8289ec2d0a9167ec".parse::<SessionId>().is_err());
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    SessionId, "session id"
}
display_uuid!(SessionId);

uuid_id! {
    /// Id of a commit. Chosen before the first attempt; every retry reuses it.
    ///
    /// ```
    /// use agent_core::CommitId;
    /// use agent_core::clock::Effects;
    ///
    /// let commit = Effects::default().new_commit_id();
    /// assert_eq!(commit.to_string().parse::<CommitId>()?, commit);
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    CommitId, "commit id"
}
display_uuid!(CommitId);

uuid_id! {
    /// Id of one run of an agent.
    ///
    /// ```
    /// use agent_core::RunId;
    /// use agent_core::clock::Effects;
    ///
    /// let run = Effects::default().new_run_id();
    /// assert_eq!(RunId::from_uuid(*run.as_uuid()), run);
    /// ```
    RunId, "run id"
}
display_uuid!(RunId);

uuid_id! {
    /// Id of an event. Derived from the commit and the event's position in it, so that a retry makes the same events.
    ///
    /// ```
    /// use agent_core::{CommitId, EventId};
    ///
    /// let commit: CommitId = "018f4e9a-7a2b-7c3d-8e4f-ffffffffffff".parse()?;
    /// let second = EventId::derive(commit, 1);
    /// assert_eq!(second.to_string(), "018f4e9a-7a2b-8c3d-8e4f-ffff00000000");
    /// assert_ne!(second, EventId::derive(commit, 0));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    EventId, "event id"
}
display_uuid!(EventId);

impl EventId {
    /// Returns the id of event `index` (from 0) of `commit`.
    ///
    /// The id is the commit's bits as a UUID of version 8 (RFC 9562, "custom"), with `index` added to the last 32
    /// bits.
    pub fn derive(commit: CommitId, index: u32) -> Self {
        let mut bytes = *commit.0.as_bytes();
        bytes[6] = (bytes[6] & 0x0f) | 0x80;
        let tail = u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]).wrapping_add(index);
        bytes[12..].copy_from_slice(&tail.to_be_bytes());
        Self(Uuid::from_bytes(bytes))
    }
}

fn parse_uuid(noun: &str, text: &str) -> Result<Uuid, ParseError> {
    if noun == "workspace id" && text == "default" {
        return Ok(Uuid::nil());
    }
    let parsed = if text.len() == 36 { Uuid::try_parse(text).ok() } else { None };
    parsed.ok_or_else(|| ParseError::new(format!("{noun} {} is not a hyphenated UUID", quoted(text))))
}

/// Returns a UUID of version 8 derived from `owner` and `parts`.
///
/// It consists of the first bits of the SHA-256 of `owner` and of each part. Each part is preceded by its length in 8
/// bytes, so that two different lists of parts never hash the same bytes.
pub(crate) fn uuid_of(owner: &Uuid, parts: &[&str]) -> Uuid {
    uuid::Builder::from_custom_bytes(hash_of(owner, parts)).into_uuid()
}

impl SessionId {
    /// Returns the id of the session that takes the place of this one, if it has no key; `attempt` counts from 0 those that were deleted or given up.
    ///
    /// Of several callers that put a session in its place, one creates it. The id is a UUID of version 4, whose bits are not random: the first ones of the
    /// SHA-256 of this id, the text `successor` and the attempt, as with [`ConversationKey::session_id`](crate::session::ConversationKey::session_id).
    ///
    /// ```
    /// use agent_core::SessionId;
    ///
    /// let id: SessionId = "b9ce3eee-5778-89b0-8cf1-5817a17120ca".parse()?;
    /// assert_eq!(id.successor(0), id.successor(0));
    /// assert_ne!(id.successor(0), id.successor(1));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn successor(self, attempt: u64) -> Self {
        let bytes = hash_of(self.as_uuid(), &["successor", &attempt.to_string()]);
        Self::from_uuid(uuid::Builder::from_random_bytes(bytes).into_uuid())
    }
}

fn hash_of(owner: &Uuid, parts: &[&str]) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.update(owner.as_bytes());
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(hash.finalize().iter()).for_each(|(to, from)| *to = *from);
    bytes
}

/// Id of a device, as the host names it: 1 to 512 bytes of text without control characters.
///
/// The id is opaque, compared byte by byte, and never becomes a path or a key unhashed.
///
/// ```
/// use agent_core::DeviceId;
///
/// let device: DeviceId = "telegram/chat 4711".parse()?;
/// assert_eq!(device.as_str(), "telegram/chat 4711");
/// assert!("two\nlines".parse::<DeviceId>().is_err());
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(Box<str>);

impl DeviceId {
    /// Maximum number of bytes of a device id.
    pub const MAX_BYTES: usize = 512;

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DeviceId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        check_text("device id", text, Self::MAX_BYTES)?;
        Ok(Self(text.into()))
    }
}

/// Id of an owner: a user of a tenant, as the host names them; 1 to 256 bytes of text without control characters.
///
/// The id is opaque, compared byte by byte, and never becomes a path or a key unhashed. A store keeps it as it is:
/// give an id by which the host finds the user, for example the subject of a token, not a name or an address.
///
/// ```
/// use agent_core::OwnerId;
///
/// let owner: OwnerId = "auth0|507f1f77".parse()?;
/// assert_eq!(owner.as_str(), "auth0|507f1f77");
/// assert!("".parse::<OwnerId>().is_err());
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(Box<str>);

impl OwnerId {
    /// Maximum number of bytes of an owner's id.
    pub const MAX_BYTES: usize = 256;

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for OwnerId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        check_text("owner id", text, Self::MAX_BYTES)?;
        Ok(Self(text.into()))
    }
}

/// Id of a tenant: `[a-z0-9][a-z0-9_-]{0,62}`. Single-tenant hosts use [`TenantId::default`].
///
/// ```
/// use agent_core::TenantId;
///
/// let tenant: TenantId = "acme-eu".parse()?;
/// assert_eq!(tenant.as_str(), "acme-eu");
/// assert_eq!(TenantId::default().as_str(), "default");
/// assert!("../acme".parse::<TenantId>().is_err());
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(Box<str>);

impl TenantId {
    /// Returns the tenant id derived from an outside name: an e-mail address, the key of a customer, any text.
    ///
    /// The id is `t-` and the first 48 lower-case hexadecimal digits (192 bits) of the SHA-256 of the bytes of
    /// `name`. So a path or a key reveals nothing of the name, and a script can compute it (`printf %s "$name" |
    /// sha256sum | cut -c1-48`). The derivation never changes. Names are compared byte by byte: if several spellings
    /// mean the same tenant, normalize them first, for example to lower case.
    ///
    /// ```
    /// use agent_core::TenantId;
    ///
    /// let tenant = TenantId::derived("alice@example.com");
    /// assert_eq!(tenant.as_str(), "t-ff8d9819fc0e12bf0d24892e45987e249a28dce836a85cad");
    /// assert_ne!(tenant, TenantId::derived("Alice@example.com"));
    /// ```
    pub fn derived(name: &str) -> Self {
        use std::fmt::Write;
        let mut text = "t-".to_owned();
        for byte in &Sha256::digest(name.as_bytes())[..24] {
            // Writing to a String does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        Self(text.into())
    }

    /// Returns the tenant `audit-of-tenants`, whose audit log has the deletions of tenants. It serves nobody, and is there
    /// from the first recorded deletion on.
    ///
    /// ```
    /// use agent_core::TenantId;
    ///
    /// assert_eq!(TenantId::audit_of_tenants(), "audit-of-tenants".parse()?);
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn audit_of_tenants() -> Self {
        Self("audit-of-tenants".into())
    }

    /// Returns the text; safe as a path component and as a key on every supported platform.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for TenantId {
    /// Returns the tenant `default`.
    fn default() -> Self {
        Self("default".into())
    }
}

impl FromStr for TenantId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let first = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let rest =
            text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-');
        if !first || !rest || text.len() > 63 || is_reserved_on_windows(text) {
            return Err(ParseError::new(format!(
                "tenant id {} must be 1 to 63 of a-z, 0-9, _ and -, start with a letter or digit, and be no reserved file name",
                quoted(text)
            )));
        }
        Ok(Self(text.into()))
    }
}

/// Returns whether Windows reserves the name. Such names are refused on every platform, so that a store can move.
fn is_reserved_on_windows(text: &str) -> bool {
    matches!(text, "con" | "prn" | "aux" | "nul")
        || (text.len() == 4
            && (text.starts_with("com") || text.starts_with("lpt"))
            && text.as_bytes()[3].is_ascii_digit())
}

macro_rules! text_id {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), &self.0)
            }
        }

        text_serde!($name);
    };
}

text_id!(DeviceId);
text_id!(OwnerId);
text_id!(TenantId);

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Number before the first one.
            pub const ZERO: Self = Self(0);

            /// Wraps a number.
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// Returns the number.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// Returns the next number. Saturates at `u64::MAX`, which no store reaches.
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter! {
    /// Sequence number of an event in its session: 1, 2, 3 … without gaps. [`Seq::ZERO`] is before the first.
    ///
    /// ```
    /// use agent_core::Seq;
    ///
    /// assert_eq!(Seq::ZERO.next(), Seq::new(1));
    /// assert_eq!(Seq::new(41).next().get(), 42);
    /// ```
    Seq
}

counter! {
    /// Number of a session's lease; increases by one with every run. Fences the writes of a run.
    ///
    /// ```
    /// use agent_core::Epoch;
    ///
    /// let (lost, successor) = (Epoch::new(3), Epoch::new(3).next());
    /// assert!(successor > lost);
    /// assert_eq!(successor.get(), 4);
    /// ```
    Epoch
}

counter! {
    /// Version number of a workspace record; increases by one with every `put`.
    ///
    /// ```
    /// use agent_core::Revision;
    ///
    /// assert_eq!(Revision::ZERO.next(), Revision::new(1));
    /// assert_eq!(Revision::new(7).to_string(), "7");
    /// ```
    Revision
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An id is checked when it is parsed, so that none can leave the root or alias another.
    #[test]
    fn hostile_ids_are_refused() {
        let long = "x".repeat(10_000);
        for text in [
            "",
            "../../x",
            "/etc/passwd",
            "a/b",
            "a\\b",
            "a\0b",
            "con",
            &long,
            "é",
            "{550e8400-e29b-41d4-a716-446655440000}",
        ] {
            assert!(text.parse::<WorkspaceId>().is_err(), "{text:?}");
            assert!(text.parse::<SessionId>().is_err(), "{text:?}");
            assert!(text.parse::<TenantId>().is_err(), "{text:?}");
        }
        assert!("550e8400e29b41d4a716446655440000".parse::<SessionId>().is_err(), "one id has one name");
        for text in ["", "a\nb", "a\0b", &long] {
            assert!(text.parse::<DeviceId>().is_err(), "{text:?}");
        }
        for text in ["../../x", "Küche", "laptop 2", "con"] {
            assert_eq!(text.parse::<DeviceId>().unwrap().as_str(), text);
        }
    }

    /// The default workspace has one spelling in, one out.
    #[test]
    fn default_workspace_is_the_nil_uuid() {
        assert_eq!("default".parse::<WorkspaceId>().unwrap(), WorkspaceId::DEFAULT);
        assert_eq!(
            "00000000-0000-0000-0000-000000000000".parse::<WorkspaceId>().unwrap(),
            WorkspaceId::DEFAULT
        );
        assert_eq!(WorkspaceId::DEFAULT.to_string(), "default");
        let upper: WorkspaceId = "550E8400-E29B-41D4-A716-446655440000".parse().unwrap();
        assert_eq!(
            upper.to_string(),
            "550e8400-e29b-41d4-a716-446655440000",
            "case does not make another id"
        );
    }

    /// The derivation of a tenant from an outside name is pinned; what it gives is a tenant id.
    #[test]
    fn tenant_id_derivation_is_pinned() {
        for (name, tenant) in [
            ("", "t-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934c"),
            ("alice@example.com", "t-ff8d9819fc0e12bf0d24892e45987e249a28dce836a85cad"),
            ("Alice@example.com", "t-cdbc73c2371c82a21a4ee7267fa1e49ec9e6f744aa75af0b"),
            ("Jos\u{e9}/../..", "t-e1c98b658c428fd2a165b3bc2db47d1a51b54b1212407c35"),
        ] {
            let derived = TenantId::derived(name);
            assert_eq!(derived.as_str(), tenant, "{name:?}");
            assert_eq!(derived.as_str().parse::<TenantId>().unwrap(), derived);
        }
    }

    /// Event ids follow from the commit, so that a retry makes the same events.
    #[test]
    fn event_ids_are_derived() {
        let commit: CommitId = "018f4e9a-7a2b-7c3d-8e4f-ffffffffffff".parse().unwrap();
        assert_eq!(EventId::derive(commit, 0), EventId::derive(commit, 0));
        assert_ne!(EventId::derive(commit, 0), EventId::derive(commit, 1));
        assert_ne!(EventId::derive(commit, 0).as_uuid(), commit.as_uuid());
        assert_eq!(EventId::derive(commit, 1).to_string(), "018f4e9a-7a2b-8c3d-8e4f-ffff00000000");
    }

    /// Quoted text is bounded, and marks a cut.
    #[test]
    fn quoted_text_is_bounded() {
        assert_eq!(quoted("a\nb"), "\"a\\nb\"");
        assert_eq!(quoted(&"é".repeat(60)), format!("\"{}\"", "é".repeat(60)));
        assert_eq!(quoted(&"é".repeat(61)), format!("\"{}…\"", "é".repeat(60)));
    }
}
