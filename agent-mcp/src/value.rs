//! Values of the configuration: texts that are not shown and may refer to secrets, and time limits.

use std::time::Duration;

use agent_core::{Error, Result};
use agent_runtime::SessionContext;
use agent_runtime::secrets::{SecretName, Secrets};
use secrecy::SecretString;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Maximum of a time limit. Nobody waits longer, and the clock could not count every one.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Beginning of a reference to a secret.
pub(crate) const SECRET: &str = "${secret:";

/// Piece of a value.
pub(crate) enum Piece<'a> {
    Text(&'a str),
    Secret(SecretName),
}

/// Returns the pieces of a value; the error says what is wrong, without the value.
pub(crate) fn pieces(value: &str) -> Result<Vec<Piece<'_>>, &'static str> {
    let (mut pieces, mut rest) = (Vec::new(), value);
    while let Some((text, after)) = rest.split_once(SECRET) {
        let (name, after) = after.split_once('}').ok_or("a secret is not closed with }")?;
        let name = name.parse().map_err(|_| "the name of a secret is none")?;
        pieces.extend([Piece::Text(text), Piece::Secret(name)]);
        rest = after;
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

/// Value that is not shown.
#[derive(Clone)]
pub(crate) struct Hidden(pub(crate) String);

impl Hidden {
    pub(crate) const WRONG: &'static str = "the value must be a text";

    /// Returns the names of the secrets in the value.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = SecretName> {
        pieces(&self.0).unwrap_or_default().into_iter().filter_map(|piece| match piece {
            Piece::Secret(name) => Some(name),
            Piece::Text(_) => None,
        })
    }

    /// Returns the value with its secrets: those of the host, or without these the ones that the session mounts. Adds them to
    /// `hidden`, each with what stands for it.
    pub(crate) async fn resolve(
        &self,
        context: &SessionContext,
        host: Option<&Secrets>,
        hidden: &mut Vec<(String, SecretString)>,
    ) -> Result<SecretString> {
        let mut value = String::with_capacity(self.0.len());
        // `check` has read the same pieces.
        for piece in pieces(&self.0).map_err(Error::invalid)? {
            match piece {
                Piece::Text(text) => value.push_str(text),
                Piece::Secret(name) => {
                    let secret = match host {
                        Some(host) => host.reveal(context.session.workspace, &name).await?,
                        None => context.secret(&name).await?,
                    };
                    value.push_str(secret.expose());
                    hidden.push((format!("(secret {})", name.as_str()), secret.expose().into()));
                }
            }
        }
        Ok(value.into())
    }
}

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The text of a usual error would quote the value.
        match Value::deserialize(deserializer) {
            Ok(Value::String(text)) => Ok(Self(text)),
            _ => Err(D::Error::custom(Self::WRONG)),
        }
    }
}

/// Time in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Seconds(pub(crate) Duration);

impl Seconds {
    pub(crate) const WRONG: &'static str =
        "the value must be a number of seconds, more than 0 and at most 86400";
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer).map_err(|_| D::Error::custom(Self::WRONG))?;
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if time <= TIMEOUT_MAX => Ok(Self(time)),
            _ => Err(D::Error::custom(Self::WRONG)),
        }
    }
}
