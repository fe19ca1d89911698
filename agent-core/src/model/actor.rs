//! Actors: a role, and a name if the host gives one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::base::text::{check_text, quoted, text_serde};
use crate::base::{Error, Result};

/// Actor that caused an event: a role, and a name if the host gives one. As text: `user`, `user:alice`,
/// `agent:coder`.
///
/// ```
/// use agent_core::model::{Actor, Role};
///
/// let alice = Actor::named(Role::User, "alice")?;
/// assert_eq!(alice.to_string(), "user:alice");
/// assert_eq!((alice.role(), alice.name()), (Role::User, Some("alice")));
/// assert_eq!(alice.without_name(), Actor::USER);
/// assert_eq!("agent:coder".parse::<Actor>()?, Actor::named(Role::Agent, "coder")?);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Actor {
    role: Role,
    name: Option<Box<str>>,
}

/// Role of an [`Actor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// Person, or program on a person's behalf.
    User,
    /// Agent.
    Agent,
    /// Library or host.
    System,
}

impl Actor {
    /// Person without a name.
    pub const USER: Self = Self { role: Role::User, name: None };
    /// Agent without a name.
    pub const AGENT: Self = Self { role: Role::Agent, name: None };
    /// Library or host, without a name.
    pub const SYSTEM: Self = Self { role: Role::System, name: None };

    /// Maximum number of bytes of a name.
    pub const MAX_NAME_BYTES: usize = 256;

    /// Creates an actor with this role and name.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the name is empty, longer than 256 bytes or contains a control character.
    pub fn named(role: Role, name: &str) -> Result<Self> {
        check_text("actor name", name, Self::MAX_NAME_BYTES)?;
        Ok(Self { role, name: Some(name.into()) })
    }

    /// Returns the role.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Returns the actor without its name.
    pub const fn without_name(&self) -> Self {
        Self { role: self.role, name: None }
    }

    /// Returns the name, if the actor has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::System => "system",
        })
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}:{name}", self.role),
            None => self.role.fmt(f),
        }
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Actor({self})")
    }
}

impl FromStr for Actor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (role, name) = match text.split_once(':') {
            Some((role, name)) => (role, Some(name)),
            None => (text, None),
        };
        let role = match role {
            "user" => Role::User,
            "agent" => Role::Agent,
            "system" => Role::System,
            _ => {
                return Err(Error::invalid(format!("actor {} is none of user, agent, system", quoted(text))));
            }
        };
        match name {
            Some(name) => Self::named(role, name),
            None => Ok(Self { role, name: None }),
        }
    }
}

text_serde!(Actor);
